//! The C library's formatter.

#![allow(unsafe_code)] // a variadic function of C, for which no safe wrapper exists

use std::ffi::CStr;

/// Octets of the longest line.
const LINE_BYTES: usize = 512;

/// The values of a line of the delivery log, as C has them.
#[derive(Debug)]
pub(crate) struct CLine<'a> {
    pub(crate) time: &'a CStr,
    pub(crate) id: &'a CStr,
    pub(crate) to: &'a CStr,
    pub(crate) relay: &'a CStr,
    pub(crate) delay_ms: u64,
    pub(crate) code: u16,
    pub(crate) text: &'a CStr,
}

/// Appends a line; one that is longer than [`LINE_BYTES`] is cut.
pub(crate) fn format(out: &mut Vec<u8>, line: &CLine<'_>) {
    let mut buffer = [0u8; LINE_BYTES];
    let format = c"%s delivered id=%s to=<%s> relay=%s delay=%llums code=%u text=\"%s\"\n";
    // SAFETY: the buffer has the length that is given; the format and each %s are strings that end with a zero and outlive the call; %llu is an
    // unsigned long long, and %u an unsigned int.
    let length = unsafe {
        libc::snprintf(
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            format.as_ptr(),
            line.time.as_ptr(),
            line.id.as_ptr(),
            line.to.as_ptr(),
            line.relay.as_ptr(),
            libc::c_ulonglong::from(line.delay_ms),
            libc::c_uint::from(line.code),
            line.text.as_ptr(),
        )
    };
    // The length that it would have without the limit, or a negative number: then there is nothing.
    let length = usize::try_from(length).unwrap_or_default().min(LINE_BYTES - 1);
    out.extend_from_slice(&buffer[..length]);
}
