//! The way of a stream to its reader: a queue with a limit, and a thread that writes. A reader that is slow does not
//! hold up the passes, unless it is so for long.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes that may wait.
pub(crate) const ROOM: usize = 64 << 20;

/// Takes what is written and hands it on. Dropping it waits until everything is written or a write has failed.
pub(crate) struct Queue {
    shared: Arc<Shared>,
    room: usize,
    waited: Duration,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    pieces: VecDeque<Vec<u8>>,
    /// Of all pieces, and of the one that is being written.
    bytes: usize,
    ended: bool,
    failed: Option<io::Error>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes one piece after the other until there are no more to come.
    fn write_all(&self, mut to: impl Write) {
        let mut state = self.lock();
        loop {
            let Some(piece) = state.pieces.pop_front() else {
                if state.ended {
                    return;
                }
                state = self.wait(state);
                continue;
            };
            drop(state);
            let written = to.write_all(&piece).and_then(|()| to.flush());
            state = self.lock();
            state.bytes -= piece.len();
            self.changed.notify_all();
            if let Err(error) = written {
                state.failed = Some(error);
                return;
            }
        }
    }
}

impl Queue {
    /// A queue to `to` in which `room` bytes may wait, and one piece more.
    ///
    /// # Errors
    /// When no thread can be had.
    pub(crate) fn new(to: impl Write + Send + 'static, room: usize) -> io::Result<Queue> {
        let shared = Arc::new(Shared::default());
        let writer = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("stream".into()).spawn(move || writer.write_all(to))?;
        Ok(Queue { shared, room, waited: Duration::ZERO, thread: Some(thread) })
    }

    /// For how long all writes have waited for room.
    pub(crate) fn waited(&self) -> Duration {
        self.waited
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// Of the write that failed.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.end();
        match self.shared.lock().failed.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn end(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
        // A panic of the thread is that of the writer; there is nothing left to write then.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.end();
    }
}

impl Write for Queue {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let mut state = self.shared.lock();
        if state.bytes >= self.room {
            let begun = Instant::now();
            while state.bytes >= self.room && state.failed.is_none() {
                state = self.shared.wait(state);
            }
            self.waited += begun.elapsed();
        }
        if let Some(error) = &state.failed {
            return Err(same(error));
        }
        state.bytes += piece.len();
        state.pieces.push_back(piece.to_vec());
        self.shared.changed.notify_all();
        Ok(piece.len())
    }

    /// What is in the queue is on its way.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn same(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| io::Error::new(error.kind(), error.to_string()), io::Error::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A reader that takes one piece each time it is told to, and shows what it took.
    struct Slow {
        go: Receiver<()>,
        took: Sender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.go.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.took.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow(room: usize) -> (Queue, Sender<()>, Receiver<Vec<u8>>) {
        let ((go, told), (took, taken)) = (channel(), channel());
        (Queue::new(Slow { go: told, took }, room).unwrap(), go, taken)
    }

    #[test]
    fn a_slow_reader_gets_everything_in_order() {
        let (mut queue, go, taken) = slow(1000);
        for n in 0..10u8 {
            queue.write_all(&[n; 7]).unwrap();
        }
        assert_eq!(queue.waited(), Duration::ZERO);
        (0..10).for_each(|_| go.send(()).unwrap());
        queue.finish().unwrap();
        assert_eq!(taken.iter().collect::<Vec<_>>(), (0..10).map(|n| vec![n; 7]).collect::<Vec<_>>());
    }

    #[test]
    fn a_full_queue_waits() {
        let (mut queue, go, taken) = slow(10);
        // The limit may be passed by one piece.
        queue.write_all(&[1; 9]).unwrap();
        queue.write_all(&[2; 100]).unwrap();
        let writing = std::thread::spawn(move || {
            queue.write_all(&[3; 1]).unwrap();
            // Both pieces before it were written: the limit held.
            assert!(queue.shared.lock().bytes <= 1);
            queue.finish().unwrap();
        });
        for expected in [vec![1; 9], vec![2; 100], vec![3; 1]] {
            go.send(()).unwrap();
            assert_eq!(taken.recv().unwrap(), expected);
        }
        writing.join().unwrap();
    }

    #[test]
    fn a_reader_that_goes_away_is_told() {
        let (mut queue, go, _taken) = slow(10);
        queue.write_all(&[1; 20]).unwrap();
        drop(go);
        // It waits for room, which the failure of the write before it gives.
        let error = queue.write_all(&[2; 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(queue.finish().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
