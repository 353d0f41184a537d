//! Answers that are asked for until they cannot change any more.

use std::sync::OnceLock;

/// Whether an answer would be the same the next time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasts {
    Yes,
    No,
}

/// A question to the kernel. An answer that does not last, because memory, descriptors or privileges were lacking, is given
/// once and not kept.
pub(crate) struct Settled(OnceLock<bool>);

impl Settled {
    pub(crate) const fn new() -> Settled {
        Settled(OnceLock::new())
    }

    /// The answer that lasts, or else what `ask` says now.
    pub(crate) fn ask(&self, ask: impl FnOnce() -> (bool, Lasts)) -> bool {
        if let Some(settled) = self.0.get() {
            return *settled;
        }
        match ask() {
            // Of several that ask at once one is heard; what lasts is the same for all.
            (answer, Lasts::Yes) => *self.0.get_or_init(|| answer),
            (answer, Lasts::No) => answer,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::handlers::lasts;
    use crate::{Error, ErrorKind};

    #[test]
    fn a_no_that_may_change_is_not_kept() {
        let question = Settled::new();
        assert!(!question.ask(|| (false, Lasts::No)));
        assert!(question.ask(|| (true, Lasts::No)));
        assert!(!question.ask(|| (false, Lasts::Yes)));
        assert!(!question.ask(|| unreachable!("it is settled")));
    }

    #[test]
    fn what_the_kernel_cannot_do_lasts_and_what_was_lacking_does_not() {
        let of = |kind| lasts(&Error::new(kind, "loading the stub", "refused"));
        assert_eq!((of(ErrorKind::Verifier), of(ErrorKind::Unsupported)), (Lasts::Yes, Lasts::Yes));
        assert_eq!((of(ErrorKind::NotPermitted), of(ErrorKind::System)), (Lasts::No, Lasts::No));
        for number in [libc::ENOMEM, libc::EMFILE, libc::EAGAIN, libc::EPERM] {
            assert_eq!(lasts(&Error::io("loading the stub", &std::io::Error::from_raw_os_error(number))), Lasts::No);
        }
        let line = "libbpf: extern (func ksym) 'bpf_cast_to_kern_ctx': not found in kernel or module BTFs".to_owned();
        let missing = Error::new(ErrorKind::System, "loading the stub", "no such process").with_log(vec![line]);
        assert_eq!(lasts(&missing), Lasts::Yes);
    }
}
