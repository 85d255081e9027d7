//! Two hosts: network namespaces, each with a virtual network card, connected by a [`Wire`].
//!
//! The cards are VXLAN devices: a card wraps each Ethernet frame in a datagram and sends it through
//! a veth pair to this process. This process acts as the cable. Delay, loss and partitions
//! therefore work alike on all kernels, even on kernels without `tc netem`. Needs root, `ip`, and a
//! kernel with network namespaces, veth and VXLAN.

use std::net::{SocketAddr, UdpSocket};
use std::process::{self, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::wire::Wire;

/// Allows only one network at a time, because the tests measure time.
static TURN: Mutex<()> = Mutex::new(());

/// The addresses of the cards, which exist only inside the namespaces.
pub(crate) const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

/// The two hosts. Dropping this value removes them.
#[derive(Debug)]
pub(crate) struct Hosts {
    wire: Option<Wire>,
    /// The names of the namespaces. This process's ends of the veth pairs have the same names.
    names: [String; 2],
    _turn: MutexGuard<'static, ()>,
}

impl Hosts {
    /// Creates both hosts. If the system does not allow it, prints the reason to stderr and returns
    /// `None`.
    pub(crate) fn new() -> Option<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let names = ["a", "b"].map(|host| format!("rwt{}{host}", process::id()));
        // This value is created first, so that dropping it removes everything if a later step
        // fails.
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

    /// Returns a command that runs `command` on a host.
    pub(crate) fn on(&self, host: usize, command: &Command) -> Command {
        // `ip netns exec` would add a mount namespace. In that namespace, a disk that a parallel
        // test unmounts would stay mounted, and that test's simulated power cut would never end.
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

    /// Creates a host. Returns this process's socket to the host, and the address at which the
    /// host's card receives datagrams.
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
        // The kernel leaves checksums to the network card, but this card has no hardware. Each
        // frame therefore contains the offset of its checksum, and the receiver fills in the
        // checksum.
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
            // An error is ignored, because it means that the link or namespace was not created. The
            // link is removed explicitly, because removing its namespace would remove it only
            // later.
            let _ = ip(&format!("link del {name}"));
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

/// Returns the addresses of the two ends of a host's veth pair: this process's end and the host's
/// end. The addresses are from the range that is reserved for benchmarks (RFC 2544). Each process
/// uses different addresses.
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
