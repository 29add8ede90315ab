//! Content that is converted to 7 bits.

use mail::{
    Content,
    seven_bit::{Converter, Plan, Scan, Unconvertible},
};
use std::sync::Arc;

/// Lines of messages: random octets hardly ever spell a header.
const LINES: &[&str] = &[
    "\r\n",
    "\r\n\r\n",
    "\n",
    "\r",
    "MIME-Version: 1.0\r\n",
    "Content-Type: text/plain; charset=utf-8\r\n",
    "Content-Type: multipart/mixed; boundary=b\r\n",
    "Content-Type: multipart/digest;\r\n boundary=\"b b\"\r\n",
    "Content-Type: multipart/signed; boundary=bb\r\n",
    "Content-Type: message/rfc822\r\n",
    "Content-Type: image/png (x\r\n y)\r\n",
    "Content-Transfer-Encoding: 8bit\r\n",
    "Content-Transfer-Encoding: base64\r\n",
    "Content-Transfer-Encoding:",
    "DKIM-Signature: v=1\r\n",
    "Subject: x\r\n",
    "--b\r\n",
    "--b--\r\n",
    "--b b\r\n",
    "--bb--",
    "--b b-- \r\n",
    "\u{e4}",
    "\u{e4} and ASCII \r\n",
    " ",
    "=",
    ".",
    "-",
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
];

/// Converts any content: the split does not change the result, the result is text of 7 bits in
/// lines that every server takes, and converting it again changes nothing. The first byte chooses the split.
pub fn seven_bit_content(bytes: &[u8]) {
    let Some((split, content)) = bytes.split_first() else { return };
    check(content, usize::from(*split).max(1));
    let spelled: Vec<u8> = content.iter().flat_map(|byte| spell(*byte)).collect();
    check(&spelled, usize::from(*split).max(1));
}

fn spell(byte: u8) -> Vec<u8> {
    LINES.get(usize::from(byte) % (LINES.len() + 4)).map_or(vec![byte], |line| line.as_bytes().to_vec())
}

fn plan(content: &[u8], size: usize) -> Result<Plan, Unconvertible> {
    let mut scan = Scan::default();
    content.chunks(size).for_each(|piece| scan.push(piece));
    scan.finish()
}

fn convert(content: &[u8], plan: Plan, size: usize) -> Vec<u8> {
    let mut converter = Converter::new(Arc::new(plan));
    let mut out: Vec<u8> = content.chunks(size).flat_map(|piece| converter.push(piece)).collect();
    out.extend(converter.finish());
    out
}

fn check(content: &[u8], size: usize) {
    let found = plan(content, size);
    assert_eq!(found, plan(content, content.len().max(1)));
    let Ok(found) = found else { return };
    let converted = convert(content, found.clone(), size);
    assert_eq!(converted, convert(content, found, content.len().max(1)));
    let was = Content::from_bytes(content.to_vec()).traits;
    let is = Content::from_bytes(converted.clone()).traits;
    assert!(!is.is_8bit && !is.is_binary && !is.lacks_final_crlf, "{is:?}");
    assert!(was.has_long_line || !is.has_long_line);
    let again = plan(&converted, size).expect("what was converted can be converted");
    assert_eq!(convert(&converted, again, size), converted);
}
