//! Changes to the lists of pools on both nodes.

use super::*;

/// The other node answers that no visitor has the numbers, so the pools need no hold.
#[test]
fn new_pools_and_numbers_are_handed_out_at_once_while_the_other_node_answers() {
    let mut cluster = Cluster::new(1, HALF_AN_HOUR);
    let servers = cluster.start_both();
    cluster.ask_until(&mut servers[0].client(), 0, true);
    let later: Vec<Pool> = (1..=POOLS + 4).map(|id| Pool::new(id, 20, HALF_AN_HOUR)).collect();
    for (site, server) in cluster.sites.iter_mut().zip(&servers) {
        site.write(later.clone());
        assert!(server.reload().contains("reloaded"));
    }
    for pool in &later {
        let row = batch::one(&mut servers[0].client(), pool, "new");
        assert!(!row.overflow, "pool {}: {row:?}", pool.id);
    }
}
