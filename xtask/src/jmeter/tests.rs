//! The last line of `JMeter`'s output, in the format of version 5.6.

#[test]
fn batches_and_failures_are_read_from_jmeter_s_last_lines() {
    let line = "summary =    474 in 00:00:08 =   62.0/s Avg:    41 Min:     0 Max:   302 \
                Err:    26 (5.49%)";
    assert_eq!(super::counts(line), Some((474, 26)));
    assert_eq!(super::counts("summary = none"), None);
}
