//! Two hosts, which are network namespaces, each with a network card, joined by a [`Wire`].
//!
//! The cards are VXLAN devices: a card wraps each Ethernet frame in a datagram and sends it through
//! a veth pair to this process, which acts as the cable. Delay, loss and partition are then the
//! same on every kernel, even on the many that lack `tc netem`. Needs root, `ip` and a kernel with
//! all three.

use std::net::{SocketAddr, UdpSocket};
use std::process::{self, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::wire::Wire;

/// Allows one network at a time, because the tests measure time.
static TURN: Mutex<()> = Mutex::new(());

/// The addresses of the cards, which exist only inside the namespaces.
pub(crate) const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

/// The two hosts, removed when dropped.
#[derive(Debug)]
pub(crate) struct Hosts {
    wire: Option<Wire>,
    /// The names of the namespaces, and of our ends of the veth pairs.
    names: [String; 2],
    _turn: MutexGuard<'static, ()>,
}

impl Hosts {
    /// Makes both hosts; `None`, with the reason on stderr, where the system does not allow it.
    pub(crate) fn new() -> Option<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let names = ["a", "b"].map(|host| format!("rwt{}{host}", process::id()));
        // Created first, so that everything is removed if a later step fails.
        let mut hosts = Self { wire: None, names, _turn: turn };
        let made = (0..2).map(|host| hosts.make(host)).collect::<Result<Vec<_>, String>>();
        match made {
            Ok(ends) => {
                hosts.wire = Some(Wire::new(&ends.try_into().unwrap()));
                Some(hosts)
            }
            Err(error) => {
                eprintln!("SKIPPED: no network of namespaces, veth and VXLAN here: {error}");
                None
            }
        }
    }

    pub(crate) fn wire(&self) -> &Wire {
        self.wire.as_ref().unwrap()
    }

    /// Returns the same command, to be run on a host.
    pub(crate) fn on(&self, host: usize, command: &Command) -> Command {
        // `ip netns exec` would add a mount namespace. A disk that a parallel test unmounts would
        // stay mounted there, and its power cut would never end.
        let mut there = Command::new("nsenter");
        there.arg(format!("--net=/run/netns/{}", self.names[host]));
        there.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => there.env(name, value),
                None => there.env_remove(name),
            };
        }
        there
    }

    /// Creates a host. Returns our socket to it, and the address at which its card receives.
    fn make(&self, host: usize) -> Result<(UdpSocket, SocketAddr), String> {
        let name = &self.names[host];
        let (ours, theirs) = below(host);
        ip(&format!("netns add {name}"))?;
        ip(&format!("link add {name} type veth peer name below netns {name}"))?;
        ip(&format!("addr add {ours}/30 dev {name}"))?;
        ip(&format!("link set {name} up"))?;
        ip(&format!("-n {name} addr add {theirs}/30 dev below"))?;
        ip(&format!("-n {name} link set below up"))?;
        let socket = UdpSocket::bind((ours.as_str(), 0)).map_err(|error| error.to_string())?;
        let port = socket.local_addr().map_err(|error| error.to_string())?.port();
        // The kernel leaves checksums to network cards, but this card has no hardware. The frame
        // therefore contains the offset of its checksum, and the receiver fills it in.
        ip(&format!(
            "-n {name} link add card type vxlan id 7 local {theirs} remote {ours} dstport {port} \
             nolearning remcsumtx remcsumrx"
        ))?;
        ip(&format!("-n {name} addr add {}/24 dev card", ADDRESSES[host]))?;
        ip(&format!("-n {name} link set card up"))?;
        ip(&format!("-n {name} link set lo up"))?;
        let theirs = theirs.parse().map_err(|error| format!("{theirs}: {error}"))?;
        Ok((socket, SocketAddr::new(theirs, port)))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.wire = None;
        for name in &self.names {
            // An error means that it was not created. The link is removed by name, because links
            // that are removed with their namespace disappear later.
            let _ = ip(&format!("link del {name}"));
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

/// Returns our address and the host's, below the cards. They are from the range reserved for
/// measurements (RFC 2544), and different for each process.
fn below(host: usize) -> (String, String) {
    let pair = process::id() % 0x4000 * 2 + u32::try_from(host).unwrap();
    let address = |last: u32| {
        let [_, second, third, fourth] = (pair * 4 + last).to_be_bytes();
        format!("198.{}.{third}.{fourth}", 18 + second)
    };
    (address(1), address(2))
}

fn ip(arguments: &str) -> Result<(), String> {
    let done = Command::new("ip").args(arguments.split(' ')).output();
    let done = done.map_err(|error| format!("ip: {error}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    if done.status.success() { Ok(()) } else { Err(format!("ip {arguments}: {}", said.trim())) }
}
