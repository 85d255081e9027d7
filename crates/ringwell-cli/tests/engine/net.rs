//! A network of hosts: each is a network namespace, and a router connects them and drops packets on
//! request.
//!
//! Needs root and `ip`. This process's host is also part of the network.

use std::process::{self, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::trial::within;

/// The priority of the router's rules that drop packets.
const DROPS: &str = "100";

/// The network, which is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Net {
    name: String,
    hosts: usize,
    _turn: MutexGuard<'static, ()>,
}

/// Tests take turns, because the networks of one process have the same names and addresses.
static TURN: Mutex<()> = Mutex::new(());

impl Net {
    /// Creates a network with this many hosts, in addition to this process's host. If the system
    /// does not allow it, prints the reason to stderr and returns `None`.
    pub(crate) fn new(hosts: usize) -> Option<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let net = Self { name: format!("rwn{}", process::id()), hosts, _turn: turn };
        match net.make() {
            Ok(()) => Some(net),
            Err(error) => {
                eprintln!("SKIPPED: no network of namespaces here: {error}");
                None
            }
        }
    }

    fn make(&self) -> Result<(), String> {
        let router = format!("{}r", self.name);
        ip(&format!("netns add {router}"))?;
        let mut forward = Command::new("nsenter");
        forward.arg(format!("--net=/run/netns/{router}"));
        forward.args(["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]);
        let forwards = forward.status().map_err(|error| error.to_string())?;
        if !forwards.success() {
            return Err("packets cannot be forwarded".to_owned());
        }
        for host in 0..=self.hosts {
            let card = format!("{}x{host}", self.name);
            let (address, gateway) = (self.address(host), Self::nth(4 * host + 1));
            ip(&format!("link add {card} type veth peer name {card}r"))?;
            ip(&format!("link set {card}r netns {router}"))?;
            ip(&format!("-n {router} addr add {gateway}/30 dev {card}r"))?;
            ip(&format!("-n {router} link set {card}r up"))?;
            if host == self.hosts {
                ip(&format!("addr add {address}/30 dev {card}"))?;
                ip(&format!("link set {card} up"))?;
                ip(&format!("route add {}/24 via {gateway}", Self::nth(0)))?;
                continue;
            }
            let space = self.space(host);
            ip(&format!("netns add {space}"))?;
            ip(&format!("link set {card} netns {space}"))?;
            ip(&format!("-n {space} link set lo up"))?;
            ip(&format!("-n {space} addr add {address}/30 dev {card}"))?;
            ip(&format!("-n {space} link set {card} up"))?;
            ip(&format!("-n {space} route add default via {gateway}"))?;
        }
        Ok(())
    }

    fn space(&self, host: usize) -> String {
        format!("{}h{host}", self.name)
    }

    /// Returns an address whose last byte is `last`, from the range that is reserved for benchmarks
    /// (RFC 2544).
    fn nth(last: usize) -> String {
        format!("198.18.{}.{last}", process::id() % 256)
    }

    /// Returns the address of a host.
    pub(crate) fn address(&self, host: usize) -> String {
        assert!(host <= self.hosts, "there is no host {host}");
        Self::nth(4 * host + 2)
    }

    /// Returns a command that runs `command` on a host.
    pub(crate) fn on(&self, host: usize, command: &Command) -> Command {
        // `ip netns exec` would add a mount namespace, in which unmounted disks would stay mounted.
        within("nsenter", &[&format!("--net=/run/netns/{}", self.space(host))], command)
    }

    /// Drops all packets from `from` to `to` from now on.
    pub(crate) fn cut_one_way(&self, from: usize, to: usize) {
        let [from, to] = [from, to].map(|host| Self::nth(4 * host));
        let rule = format!("rule add from {from}/30 to {to}/30 prio {DROPS} blackhole");
        ip(&format!("-n {}r {rule}", self.name)).unwrap();
    }

    /// Cuts off each host in `these` from each host in `others`.
    pub(crate) fn cut(&self, these: &[usize], others: &[usize]) {
        for &this in these {
            for &other in others {
                self.cut_one_way(this, other);
                self.cut_one_way(other, this);
            }
        }
    }

    /// Lets all hosts reach each other again.
    pub(crate) fn heal(&self) {
        while ip(&format!("-n {}r rule del prio {DROPS}", self.name)).is_ok() {}
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // An error is ignored, because it means that the link was not created.
        let _ = ip(&format!("link del {}x{}", self.name, self.hosts));
        for host in 0..self.hosts {
            let _ = ip(&format!("netns del {}", self.space(host)));
        }
        let _ = ip(&format!("netns del {}r", self.name));
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let done = Command::new("ip").args(arguments.split(' ')).output();
    let done = done.map_err(|error| format!("ip: {error}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    if done.status.success() { Ok(()) } else { Err(format!("ip {arguments}: {}", said.trim())) }
}
