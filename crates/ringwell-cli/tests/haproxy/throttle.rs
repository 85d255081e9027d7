//! A link that is limited to a number of bytes per second.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A relay between a node and another node's link. It listens on a separate port.
pub(crate) struct Throttle {
    pub(crate) address: String,
    bytes_a_second: Arc<AtomicU64>,
}

impl Throttle {
    /// Starts a relay to the unix socket at `link`. Initially, the traffic is not limited.
    pub(crate) fn new(link: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let bytes_a_second = Arc::new(AtomicU64::new(u64::MAX));
        let rate = Arc::clone(&bytes_a_second);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                // The node that listens at `link` may not be running yet. The other node then tries
                // again.
                let Ok(far) = UnixStream::connect(&link) else { continue };
                pass(&near, &far, &rate);
            }
        });
        Self { address, bytes_a_second }
    }

    pub(crate) fn set(&self, bytes_a_second: u64) {
        self.bytes_a_second.store(bytes_a_second, Ordering::Relaxed);
    }
}

fn pass(near: &TcpStream, far: &UnixStream, rate: &Arc<AtomicU64>) {
    let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
    let (to, from) = ((near.try_clone().unwrap(), far_too), (far.try_clone().unwrap(), near_too));
    let (rate, rate_too) = (Arc::clone(rate), Arc::clone(rate));
    thread::spawn(move || {
        copy(to.0, &to.1, &rate);
        let _ = to.1.shutdown(Shutdown::Both);
    });
    thread::spawn(move || {
        copy(from.0, &from.1, &rate_too);
        let _ = from.1.shutdown(Shutdown::Both);
    });
}

/// Copies bytes at the limited rate until either side closes the connection.
fn copy(mut from: impl Read, mut to: impl Write, rate: &AtomicU64) {
    let mut piece = [0; 64];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        let nanos = 1_000_000_000 * length as u64 / rate.load(Ordering::Relaxed);
        thread::sleep(Duration::from_nanos(nanos));
        if to.write_all(&piece[..length]).is_err() {
            return;
        }
    }
}
