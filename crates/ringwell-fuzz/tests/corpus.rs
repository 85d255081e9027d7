//! Tries every input in the fuzzer's corpus without the fuzzer.

use std::path::Path;

use ringwell_fuzz::TARGETS;

#[test]
fn every_committed_input_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in TARGETS {
        let inputs = std::fs::read_dir(corpus.join(name)).unwrap();
        let mut paths: Vec<_> = inputs.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        assert!(paths.len() >= 10, "{name} has only {} inputs", paths.len());
        for path in paths {
            // Prints the input's path, which is shown if the target panics.
            println!("{}", path.display());
            target(&std::fs::read(path).unwrap());
        }
    }
}

#[test]
fn every_target_has_its_fuzzer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    let files = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        files.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, TARGETS.map(|(name, _)| format!("{name}.rs")));
}
