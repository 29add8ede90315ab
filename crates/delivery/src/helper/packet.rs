//! Packets with descriptors, over a socket that keeps their borders.

use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create},
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
};
use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// The longest packet. Arguments of a program are the longest part.
const PACKET_MAX_BYTES: usize = 128 * 1024;
/// Descriptors of a packet: the content, and the socket for the answer.
const DESCRIPTORS_MAX: usize = 2;

/// The seals of content: its size, its bytes and the seals themselves stay.
const SEALS: SealFlags =
    SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::SEAL);

/// One packet with the file descriptors that came with it.
pub(super) struct Packet {
    pub(super) bytes: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// Sends a packet.
pub(super) fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL.into());
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Sends a packet, if the other side has room for it.
pub(super) fn send_now(socket: impl AsFd, bytes: &[u8]) -> io::Result<()> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(bytes)], &mut SendAncillaryBuffer::default(), flags)?;
    Ok(())
}

/// Receives a packet; none if the other side has closed the socket.
///
/// # Errors
/// The packet is too long, or there is none yet.
pub(super) fn receive(socket: impl AsFd) -> io::Result<Option<Packet>> {
    let mut bytes = vec![0; PACKET_MAX_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the packet is too long"));
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    bytes.truncate(received.bytes);
    Ok(Some(Packet { bytes, descriptors }))
}

/// Makes a file in memory (memfd_create) that can be sealed.
pub(crate) fn memory_file() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    Ok(File::from(memfd_create("postrider-content", flags)?))
}

/// Seals a file in memory: nobody can change it any more.
pub(crate) fn seal(file: &File) -> io::Result<()> {
    Ok(fcntl_add_seals(file, SEALS)?)
}

/// Returns whether nobody can change a file any more.
pub(super) fn is_sealed(file: &File) -> bool {
    fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SEALS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::io::Write as _;

    #[test]
    fn packets_keep_their_borders_and_bring_descriptors() {
        let flags = SocketFlags::CLOEXEC;
        let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let mut file = memory_file().unwrap();
        assert!(!is_sealed(&file));
        file.write_all(b"content").unwrap();
        seal(&file).unwrap();
        assert!(is_sealed(&file) && file.write_all(b"more").is_err() && file.set_len(0).is_err());
        send(&here, b"one", &[file.as_fd()]).unwrap();
        send(&here, b"two", &[]).unwrap();
        let one = receive(&there).unwrap().unwrap();
        assert_eq!((&one.bytes[..], one.descriptors.len()), (&b"one"[..], 1));
        assert!(is_sealed(&File::from(one.descriptors.into_iter().next().unwrap())));
        assert_eq!(receive(&there).unwrap().unwrap().bytes, b"two");
        drop(here);
        assert!(receive(&there).unwrap().is_none());
    }
}
