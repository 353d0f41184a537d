//! Patterns of a task's name.

/// Bytes of a task's name, with a NUL at the end at least (TASK_COMM_LEN).
pub(crate) const COMM: usize = 16;
/// The longest name.
pub(crate) const COMM_MAX: usize = COMM - 1;

/// A pattern as the pieces between its stars: N + 1 pieces for N stars. No star: the whole name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob {
    pub(crate) pieces: Vec<Piece>,
}

/// What each byte has to be; `None` is any one byte.
pub(crate) type Piece = Vec<Option<u8>>;

impl Glob {
    /// Exactly this name.
    pub(crate) fn exact(name: &[u8]) -> Glob {
        Glob { pieces: vec![name.iter().map(|&byte| Some(byte)).collect()] }
    }

    /// `*` is any number of bytes, `?` any one, `\` takes the meaning from what follows.
    pub(crate) fn parse(pattern: &[u8]) -> Glob {
        let mut pieces = vec![Piece::new()];
        let mut bytes = pattern.iter().copied();
        let mut starred = false;
        while let Some(byte) = bytes.next() {
            if byte == b'*' {
                // Stars side by side say no more than one.
                if !starred {
                    pieces.push(Piece::new());
                }
                starred = true;
                continue;
            }
            starred = false;
            let wanted = match byte {
                b'?' => None,
                b'\\' => Some(bytes.next().unwrap_or(b'\\')),
                byte => Some(byte),
            };
            if let Some(piece) = pieces.last_mut() {
                piece.push(wanted);
            }
        }
        Glob { pieces }
    }

    /// Bytes that a name has at least.
    pub(crate) fn shortest(&self) -> usize {
        self.pieces.iter().map(Vec::len).sum()
    }

    /// Whether every name matches.
    pub(crate) fn is_open(&self) -> bool {
        self.pieces.len() > 1 && self.shortest() == 0
    }

    /// Whether a name matches, which ends at its first NUL.
    pub(crate) fn matches(&self, comm: &[u8; COMM]) -> bool {
        self.matches_all_of(comm.split(|&byte| byte == 0).next().unwrap_or_default())
    }

    /// Whether these bytes match.
    fn matches_all_of(&self, name: &[u8]) -> bool {
        let fits = |piece: &Piece, at: usize| {
            name.get(at..at + piece.len())
                .is_some_and(|part| part.iter().zip(piece).all(|(byte, want)| want.is_none_or(|want| want == *byte)))
        };
        let Some((first, rest)) = self.pieces.split_first() else { return false };
        if !fits(first, 0) {
            return false;
        }
        let Some((last, middle)) = rest.split_last() else { return name.len() == first.len() };
        let mut at = first.len();
        for piece in middle {
            match (at..=name.len()).find(|&start| fits(piece, start)) {
                Some(start) => at = start + piece.len(),
                None => return false,
            }
        }
        name.len().checked_sub(last.len()).is_some_and(|start| start >= at && fits(last, start))
    }
}

/// Whether a name matches a pattern as in `comm ~ "…"`: `*` is any number of bytes, `?` any one.
pub fn like(pattern: &str, name: &str) -> bool {
    Glob::parse(pattern.as_bytes()).matches_all_of(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comm(name: &str) -> [u8; COMM] {
        let mut comm = [0; COMM];
        comm[..name.len()].copy_from_slice(name.as_bytes());
        comm
    }

    #[test]
    fn patterns() {
        let matching = |pattern: &str, name: &str| Glob::parse(pattern.as_bytes()).matches(&comm(name));
        for (pattern, yes, no) in [
            ("kworker*", vec!["kworker", "kworker/0:1"], vec!["kworke", "xkworker"]),
            ("*bench", vec!["bench", "my-bench", "benchbench"], vec!["bench2", "ench"]),
            ("a*b*c", vec!["abc", "axbxc", "abcabc"], vec!["ab", "acb", "abcd"]),
            ("*a?c*", vec!["abc", "xxabcxx", "aacac"], vec!["ac", "ab"]),
            ("?", vec!["x"], vec!["", "xy"]),
            ("*", vec!["", "x", "fifteen-letters"], vec![]),
            ("**x**", vec!["x", "axb"], vec!["", "ab"]),
            ("", vec![""], vec!["x"]),
            ("a\\*", vec!["a*"], vec!["ab", "a"]),
            ("*aab", vec!["aaab", "aabaab"], vec!["aaba"]),
            ("ab*ba", vec!["abba", "abxba"], vec!["aba"]),
        ] {
            yes.iter().for_each(|name| assert!(matching(pattern, name), "{pattern} {name}"));
            no.iter().for_each(|name| assert!(!matching(pattern, name), "{pattern} {name}"));
        }
        assert!(like("tcp_*_timer", "tcp_retransmit_timer") && !like("tcp_*_timer", "tcp_timer"));
        assert!(Glob::parse(b"***").is_open());
        assert!(!Glob::parse(b"").is_open());
        assert!(Glob::exact(b"a*").matches(&comm("a*")) && !Glob::exact(b"a*").matches(&comm("ab")));
    }
}
