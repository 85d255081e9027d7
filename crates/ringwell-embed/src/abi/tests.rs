//! Tests the engine through its C ABI, as other languages call it.

mod calls;
mod durability;
mod misuse;

use std::path::Path;
use std::time::{Duration, Instant};

use super::*;

const KEY: &str = "S3CR3TKEY0000001";

/// An engine that is closed when dropped.
pub(super) struct Opened(u64);

impl Opened {
    pub(super) fn new(options: &str) -> Self {
        let (status, handle, text) = open(options.as_bytes());
        assert_eq!((status, text.as_str()), (OK, ""));
        Self(handle)
    }

    pub(super) fn bulk(&self, body: &str) -> (i32, String) {
        bulk(self.0, body, None, 0)
    }

    /// Requests numbers for `rows` rows of pool 1, and returns them. An overflow number is returned
    /// as `over`.
    pub(super) fn numbers(&self, rows: usize) -> Vec<String> {
        let (status, text) = self.bulk(&batch(rows));
        assert_eq!(status, OK, "{text}");
        numbers_of(&text)
    }

    pub(super) fn status(&self) -> serde_json::Value {
        let (status, text) = call(|out| {
            // SAFETY: `out` is a reference.
            unsafe { ringwell_embed_status(self.0, out) }
        });
        assert_eq!(status, OK, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    pub(super) fn snapshot(&self) -> (i32, String) {
        call(|out| {
            // SAFETY: `out` is a reference.
            unsafe { ringwell_embed_snapshot(self.0, out) }
        })
    }

    pub(super) fn flush(&self) -> (i32, String) {
        call(|out| {
            // SAFETY: `out` is a reference.
            unsafe { ringwell_embed_flush(self.0, out) }
        })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        close(self.0);
    }
}

/// Calls a function of the ABI, copies the bytes that it returns, and frees them.
pub(super) fn call(work: impl FnOnce(&mut Bytes) -> i32) -> (i32, String) {
    let mut out = Bytes::NONE;
    let status = work(&mut out);
    // SAFETY: `out` contains the function's result. The text is copied before the result is freed.
    let text = unsafe { input(out.at, out.len) }.unwrap_or_default();
    let text = String::from_utf8(text.to_vec()).unwrap();
    for _ in 0..2 {
        // SAFETY: `out` contains the function's result in the first iteration, and is empty in the
        // second.
        unsafe { ringwell_embed_free(&raw mut out) };
        assert!(out.at.is_null());
    }
    (status, text)
}

pub(super) fn open(options: &[u8]) -> (i32, u64, String) {
    let mut handle = 1;
    let (status, text) = call(|out| {
        // SAFETY: all pointers come from references.
        unsafe { ringwell_embed_open(options.as_ptr(), options.len(), &raw mut handle, out) }
    });
    (status, handle, text)
}

pub(super) fn bulk(handle: u64, body: &str, key: Option<&str>, deadline_ms: u64) -> (i32, String) {
    let (key_at, key_len) = key.map_or((std::ptr::null(), 0), |key| (key.as_ptr(), key.len()));
    let (at, len) = (body.as_ptr(), body.len());
    call(|out| {
        // SAFETY: all pointers and lengths come from slices that outlive the call.
        unsafe { ringwell_embed_bulk(handle, at, len, key_at, key_len, deadline_ms, out) }
    })
}

pub(super) fn close(handle: u64) -> (i32, String) {
    call(|out| {
        // SAFETY: `out` is a reference.
        unsafe { ringwell_embed_close(handle, out) }
    })
}

/// Creates options with one pool, whose numbers begin at 8885550101.
pub(super) fn options(data: &Path, durability: &str, numbers: u32) -> String {
    let last = 8_885_550_100_u64 + u64::from(numbers);
    format!(
        r#"{{"data":{data:?},"durability":"{durability}","pools":[{{"id":1,"ring_pool_key":"{KEY}",
        "lifetime_seconds":1800,"numbers":["8885550101-{last}"],"overflow_number":"8889999999"}}]}}"#
    )
}

pub(super) fn memory(numbers: u32) -> Opened {
    Opened::new(&options(Path::new(""), "memory", numbers))
}

pub(super) fn batch(rows: usize) -> String {
    let row = format!(r#"{{"api_suffix":"1/allocate_number.json?ring_pool_key={KEY}&m1=autos"}}"#);
    format!("{{\"requests\":[{}]}}", vec![row; rows].join(","))
}

pub(super) fn numbers_of(text: &str) -> Vec<String> {
    let json: serde_json::Value = serde_json::from_str(text).unwrap();
    let rows = json["responses"].as_array().unwrap();
    let number = |row: &serde_json::Value| match row["overflow"].as_bool() {
        Some(true) => "over".to_owned(),
        _ => row["promo_number"].as_str().unwrap_or_else(|| panic!("{row}")).to_owned(),
    };
    rows.iter().map(number).collect()
}
