//! The wire between two hosts: carries frames between them, optionally with delay or loss.
//!
//! Owns two sockets and four threads. Ignores the contents of the frames. Each direction has
//! separate faults, and frames never overtake each other.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The time within which the threads detect that the wire has been dropped.
const TICK: Duration = Duration::from_millis(20);

/// The largest datagram.
const FRAME_BYTES_MAX: usize = 65_535;

/// One direction of the wire.
#[derive(Debug, Default)]
struct Way {
    delay_us: AtomicU64,
    lost_percent: AtomicU32,
}

/// A wire. Its threads end when it is dropped.
#[derive(Debug)]
pub(crate) struct Wire {
    /// The wire's directions. `ways[i]` carries frames from host i.
    ways: [Arc<Way>; 2],
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// The time when a frame is due at the other end, and the frame.
type Carried = (Instant, Vec<u8>);

impl Wire {
    /// Joins two hosts. `ends[i]` contains this process's socket to host i, and the address at
    /// which the host receives datagrams.
    pub(crate) fn new(ends: &[(UdpSocket, SocketAddr); 2]) -> Self {
        let ways: [Arc<Way>; 2] = Default::default();
        let is_over = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (from, way) in ways.iter().enumerate() {
            let (sender, receiver) = channel();
            let socket = ends[from].0.try_clone().unwrap();
            socket.set_read_timeout(Some(TICK)).unwrap();
            let (way, is_over) = (Arc::clone(way), Arc::clone(&is_over));
            threads.push(thread::spawn(move || take_in(&socket, &way, &is_over, &sender)));
            let (socket, to) = &ends[1 - from];
            let (socket, to) = (socket.try_clone().unwrap(), *to);
            threads.push(thread::spawn(move || hand_on(&receiver, &socket, to)));
        }
        Self { ways, is_over, threads }
    }

    /// Delays every frame from `host` by `delay`.
    pub(crate) fn delay(&self, host: usize, delay: Duration) {
        let us = u64::try_from(delay.as_micros()).unwrap();
        self.ways[host].delay_us.store(us, Ordering::Relaxed);
    }

    /// Drops `percent` % of the frames from `host`.
    pub(crate) fn lose(&self, host: usize, percent: u32) {
        self.ways[host].lost_percent.store(percent, Ordering::Relaxed);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The result is ignored: if a thread panicked, the test that uses the wire fails
            // anyway.
            let _ = thread.join();
        }
    }
}

fn take_in(socket: &UdpSocket, way: &Way, is_over: &AtomicBool, onward: &Sender<Carried>) {
    let mut frame = vec![0; FRAME_BYTES_MAX];
    let mut random = 1;
    while !is_over.load(Ordering::Relaxed) {
        let length = match socket.recv(&mut frame) {
            Ok(length) => length,
            Err(error) if is_of_the_moment(error.kind()) => continue,
            Err(error) => panic!("the wire is broken: {error}"),
        };
        let arrived = Instant::now();
        if draw_percent(&mut random) < way.lost_percent.load(Ordering::Relaxed) {
            continue;
        }
        let delay = Duration::from_micros(way.delay_us.load(Ordering::Relaxed));
        if onward.send((arrived + delay, frame[..length].to_vec())).is_err() {
            return;
        }
    }
}

fn hand_on(frames: &Receiver<Carried>, socket: &UdpSocket, to: SocketAddr) {
    for (due, frame) in frames {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // An error is ignored. If the host is gone, the frame is lost, as on any network.
        let _ = socket.send_to(&frame, to);
    }
}

/// Returns whether an error only means that no frame arrived, or that the host does not listen yet.
fn is_of_the_moment(kind: ErrorKind) -> bool {
    use ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(kind, WouldBlock | TimedOut | Interrupted | ConnectionRefused)
}

/// Returns the next pseudo-random number from 0 to 99. The sequence is the same in every run.
fn draw_percent(state: &mut u64) -> u32 {
    // The linear congruential generator from Knuth's MMIX. Its high bits are the most random.
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    u32::try_from((*state >> 33) % 100).unwrap()
}
