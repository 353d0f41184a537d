//! Messages from a guest to its host, over a serial line that nothing else in the guest writes to.
//!
//! A message is the byte 0xa9, its kind (one byte), the length of its content (u32, little-endian) and the content:
//! numbers are little-endian, and a text takes the rest. What tests print travels inside messages, so that no output
//! can pass for a result.

/// What stands in front of every message.
const MARK: u8 = 0xa9;
/// The most bytes of content.
pub const CONTENT_MAX: usize = 1 << 16;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The first process runs.
    Up {
        /// Time since the kernel's start, in milliseconds.
        uptime_ms: u64,
        /// The kernel's release, as `uname -r` says it.
        release: String,
    },
    /// The run of the plan with this index starts.
    Started(u32),
    /// What the current run printed, on stdout and stderr.
    Output(Vec<u8>),
    /// The run with this index is over.
    Ended(u32, How),
    /// Something that a person should know.
    Note(String),
    /// Everything is done, and this many bytes of archive are on the disk.
    Finished(u64),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// By itself, with this exit code.
    Exit(u8),
    /// By this signal.
    Signal(u8),
    /// Killed, since its time was over.
    TimedOut,
    /// Its program is not in the guest.
    Missing(String),
    /// It could not be started.
    NotStarted(String),
}

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Garbled;

impl std::fmt::Display for Garbled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the guest sent bytes that are no message")
    }
}

impl std::error::Error for Garbled {}

impl Message {
    /// Appends the message to `out`. Content over [`CONTENT_MAX`] is cut.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut content = Vec::new();
        let kind = match self {
            Message::Up { uptime_ms, release } => {
                content.extend(uptime_ms.to_le_bytes());
                content.extend(release.bytes());
                1
            }
            Message::Started(run) => {
                content.extend(run.to_le_bytes());
                2
            }
            Message::Output(bytes) => {
                content.extend(bytes);
                3
            }
            Message::Ended(run, how) => {
                content.extend(run.to_le_bytes());
                how.encode(&mut content);
                4
            }
            Message::Note(text) => {
                content.extend(text.bytes());
                5
            }
            Message::Finished(bytes) => {
                content.extend(bytes.to_le_bytes());
                6
            }
        };
        content.truncate(CONTENT_MAX);
        out.extend([MARK, kind]);
        out.extend((content.len() as u32).to_le_bytes());
        out.extend(content);
    }

    fn decode(kind: u8, content: &[u8]) -> Option<Message> {
        Some(match kind {
            1 => {
                let (uptime, release) = content.split_first_chunk()?;
                Message::Up { uptime_ms: u64::from_le_bytes(*uptime), release: text(release) }
            }
            2 => Message::Started(u32::from_le_bytes(content.try_into().ok()?)),
            3 => Message::Output(content.to_vec()),
            4 => {
                let (run, how) = content.split_first_chunk()?;
                Message::Ended(u32::from_le_bytes(*run), How::decode(how)?)
            }
            5 => Message::Note(text(content)),
            6 => Message::Finished(u64::from_le_bytes(content.try_into().ok()?)),
            _ => return None,
        })
    }
}

impl How {
    fn encode(&self, content: &mut Vec<u8>) {
        match self {
            How::Exit(code) => content.extend([1, *code]),
            How::Signal(signal) => content.extend([2, *signal]),
            How::TimedOut => content.push(3),
            How::Missing(path) => {
                content.push(4);
                content.extend(path.bytes());
            }
            How::NotStarted(why) => {
                content.push(5);
                content.extend(why.bytes());
            }
        }
    }

    fn decode(content: &[u8]) -> Option<How> {
        Some(match content {
            [1, code] => How::Exit(*code),
            [2, signal] => How::Signal(*signal),
            [3] => How::TimedOut,
            [4, path @ ..] => How::Missing(text(path)),
            [5, why @ ..] => How::NotStarted(text(why)),
            _ => return None,
        })
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Finds the messages in a stream of bytes.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
}

impl Decoder {
    /// Takes what arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// The next whole message; none when more has to arrive first.
    ///
    /// # Errors
    /// What comes next is no message. There is no way on from there.
    pub fn message(&mut self) -> Result<Option<Message>, Garbled> {
        if self.bytes.first().is_some_and(|mark| *mark != MARK) {
            return Err(Garbled);
        }
        let Some((&[_, kind, a, b, c, d], rest)) = self.bytes.split_first_chunk() else { return Ok(None) };
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > CONTENT_MAX {
            return Err(Garbled);
        }
        let Some(content) = rest.get(..length) else { return Ok(None) };
        let message = Message::decode(kind, content).ok_or(Garbled)?;
        self.bytes.drain(..6 + length);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Message> {
        vec![
            Message::Up { uptime_ms: 1730, release: "6.1.0-57-cloud-amd64".into() },
            Message::Started(0),
            Message::Output(vec![MARK, 4, 0, 0, 0, 0]),
            Message::Ended(0, How::Exit(101)),
            Message::Ended(1, How::Signal(11)),
            Message::Ended(2, How::TimedOut),
            Message::Ended(3, How::Missing("/gone".into())),
            Message::Ended(4, How::NotStarted("no".into())),
            Message::Note(String::new()),
            Message::Finished(1 << 40),
        ]
    }

    fn bytes() -> Vec<u8> {
        let mut bytes = Vec::new();
        all().iter().for_each(|message| message.encode(&mut bytes));
        bytes
    }

    #[test]
    fn messages_come_through_byte_by_byte() {
        let mut decoder = Decoder::default();
        let mut found = Vec::new();
        for byte in bytes() {
            decoder.push(&[byte]);
            while let Some(message) = decoder.message().unwrap() {
                found.push(message);
            }
        }
        assert_eq!(found, all());
    }

    #[test]
    fn damage_is_told_or_gives_another_message() {
        let good = bytes();
        for at in 0..good.len() {
            let mut damaged = good.clone();
            damaged[at] ^= 0xff;
            let mut decoder = Decoder::default();
            decoder.push(&damaged);
            let mut found = Vec::new();
            while let Ok(Some(message)) = decoder.message() {
                found.push(message);
            }
            assert_ne!(found, all(), "byte {at}");
        }
    }

    #[test]
    fn a_length_over_the_limit_is_not_waited_for() {
        let mut decoder = Decoder::default();
        decoder.push(&[MARK, 3, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(decoder.message(), Err(Garbled));
    }
}
