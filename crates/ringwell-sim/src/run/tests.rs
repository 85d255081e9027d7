#![allow(clippy::unwrap_used, reason = "a test ends by failing")]

use std::rc::Rc;

use super::Options;
use crate::world::World;

#[test]
fn a_run_leaves_nothing_in_memory() {
    let mut world = World::new(&Options { seed: 1, ..Options::default() });
    world.run().unwrap();
    assert!(world.nodes.iter().any(|node| node.running.is_some()), "no process ran to the end");
    let shared = Rc::downgrade(&world.shared);
    drop(world);
    assert_eq!(shared.strong_count(), 0, "processes of a finished run still exist");
}
