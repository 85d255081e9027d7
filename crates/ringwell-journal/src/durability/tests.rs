use super::*;

#[test]
fn each_durability_is_read_by_its_printed_name() {
    for (name, durability) in
        [("disk", Durability::Disk), ("os", Durability::Os), ("memory", Durability::Memory)]
    {
        assert_eq!(name.parse(), Ok(durability));
        assert_eq!(durability.to_string(), name);
    }
    let error = "fsync".parse::<Durability>().unwrap_err();
    assert_eq!(error.to_string(), "unknown durability \"fsync\": use disk, os or memory");
}
