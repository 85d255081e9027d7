//! Implements the driver's file trait on a simulated disk, so that production code can use it.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringwell_driver::store::{Access, FileError, Files, ServedMap};

use crate::disk::{Disk, Handle, Trouble};
use crate::fault::Faults;
use crate::name::{Name, Sort};
use crate::random::Random;

/// The directory of a node, which is the root of its disk.
pub(crate) const DATA: &str = "";

/// The node's own files. The index of each file in this list is its number.
const OWN: [&str; 7] = [
    "cluster-map.json",
    "identity.json",
    "peers.json",
    "RESTORED",
    "gaps.json",
    "unflushed.json",
    "lifetimes.json",
];

/// Returns the name of the file that marks data as a copy.
pub(crate) fn restored_mark() -> Option<Name> {
    name(Path::new("RESTORED"))
}

/// The names of the file that marks an incomplete copy of a shard's log: the final name, and the
/// name while the file is being written.
const MARK: [&str; 2] = ["UNFINISHED", "UNFINISHED.tmp"];

/// The disk of one machine, as seen by one process.
#[derive(Clone, Debug)]
pub(crate) struct SimFiles {
    disk: Arc<Mutex<Disk>>,
    /// The faults that happen in file calls. All machines share these faults.
    faults: Arc<Mutex<Faults>>,
    salts: Arc<Mutex<Random>>,
    life: u32,
}

impl SimFiles {
    pub(crate) fn new(faults: &Arc<Mutex<Faults>>, salts: &Arc<Mutex<Random>>) -> Self {
        let (faults, salts) = (Arc::clone(faults), Arc::clone(salts));
        Self { disk: Arc::default(), faults, salts, life: 0 }
    }

    /// Returns the node's record of the buckets that it serves; `None` if there is no such record.
    pub(crate) fn served(&self) -> Option<ServedMap> {
        ServedMap::read(self, Path::new(DATA)).ok().flatten()
    }

    /// The disk. It must not be locked while production code runs.
    pub(crate) fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Assigns the files to the next process.
    pub(crate) fn next_life(&mut self) {
        let life = self.disk().life;
        self.life = life;
    }

    fn call<T>(
        &self,
        action: &'static str,
        path: &Path,
        call: impl FnOnce(&mut Disk, &mut Faults) -> Result<T, Trouble>,
    ) -> Result<T, FileError> {
        let mut disk = self.disk();
        let called = if disk.life == self.life {
            call(&mut disk, &mut lock(&self.faults))
        } else {
            Err(Trouble::Crashed)
        };
        called.map_err(|trouble| {
            let kind = match trouble {
                Trouble::Missing => io::ErrorKind::NotFound,
                Trouble::Full => io::ErrorKind::StorageFull,
                Trouble::Io | Trouble::Crashed => io::ErrorKind::Other,
            };
            let (path, source) = (path.to_owned(), io::Error::from(kind));
            FileError { action, path, source, has_no_room: trouble == Trouble::Full }
        })
    }

    fn named<T>(
        &self,
        action: &'static str,
        path: &Path,
        call: impl FnOnce(&mut Disk, &mut Faults, Name) -> Result<T, Trouble>,
    ) -> Result<T, FileError> {
        self.call(action, path, |disk, faults| {
            call(disk, faults, name(path).ok_or(Trouble::Missing)?)
        })
    }
}

pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Files for SimFiles {
    type File = Handle;

    fn create(&self, path: &Path) -> Result<Handle, FileError> {
        self.named("create", path, Disk::create)
    }

    fn open(&self, path: &Path, access: Access) -> Result<Handle, FileError> {
        self.named("open", path, |disk, _, name| {
            let file = disk.open(name, access == Access::Direct)?;
            if access == Access::Fresh {
                disk.forget_cache(&file);
            }
            Ok(file)
        })
    }

    fn read_at(&self, file: &Handle, offset: u64, out: &mut [u8]) -> Result<usize, FileError> {
        self.call("read", Path::new("a file"), |disk, _| disk.read(file, offset, out))
    }

    fn write_at(&self, file: &mut Handle, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let path = Path::new("a file");
        self.call("write", path, |disk, faults| disk.write(faults, file, offset, bytes))
    }

    fn flush(&self, file: &Handle) -> Result<(), FileError> {
        self.call("flush", Path::new("a file"), |disk, faults| disk.flush(faults, file))
    }

    fn flush_data(&self, file: &Handle) -> Result<(), FileError> {
        self.flush(file)
    }

    fn set_len(&self, file: &Handle, len: u64) -> Result<(), FileError> {
        self.call("cut", Path::new("a file"), |disk, faults| disk.cut(faults, file, len))
    }

    fn len(&self, file: &Handle) -> Result<u64, FileError> {
        self.call("look at", Path::new("a file"), |disk, _| Ok(disk.len(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError> {
        self.named("rename", from, |disk, faults, from| {
            disk.rename(faults, from, name(to).ok_or(Trouble::Io)?)
        })
    }

    fn remove(&self, path: &Path) -> Result<(), FileError> {
        self.named("remove", path, Disk::remove)
    }

    fn flush_names(&self, directory: &Path) -> Result<(), FileError> {
        self.call("flush", directory, Disk::flush_names)
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>, FileError> {
        self.call("list", directory, |disk, _| {
            if directory == Path::new("journal") {
                return Ok(disk.directories.iter().map(ToString::to_string).collect());
            }
            let shard = directory.file_name().and_then(|name| name.to_str()?.parse().ok());
            Ok(disk.names(shard.unwrap_or(u16::MAX)).into_iter().map(file_name).collect())
        })
    }

    fn make_directory(&self, path: &Path) -> Result<(), FileError> {
        // The simulator created the directory together with the machine, so no fault happens.
        let shard = path.file_name().and_then(|name| name.to_str()?.parse::<u16>().ok());
        self.disk().directories.extend(shard);
        Ok(())
    }

    fn exists(&self, path: &Path) -> bool {
        name(path).is_some_and(|name| self.disk().exists(name))
    }

    fn mount_of(&self, _: &Path) -> Option<u64> {
        Some(self.disk().mounts)
    }

    fn random(&self, _: &Path) -> Result<[u8; 16], FileError> {
        let mut salts = lock(&self.salts);
        let both = (u128::from(salts.next()) << 64) | u128::from(salts.next());
        Ok(both.to_le_bytes())
    }

    fn moment(&self) -> Duration {
        Duration::ZERO
    }
}

/// Returns the name of the file that production code calls `path`.
fn name(path: &Path) -> Option<Name> {
    let name = parse(path)?;
    debug_assert!(path.ends_with(file_name(name)), "{} has another name", path.display());
    Some(name)
}

fn parse(path: &Path) -> Option<Name> {
    let text = path.to_str()?;
    let Some(rest) = text.strip_prefix("journal/") else {
        let (stem, sort) = match text.strip_suffix(".tmp") {
            Some(stem) => (stem, Sort::Unfinished),
            None => (text, Sort::Map),
        };
        let number = OWN.iter().position(|own| *own == stem)? as u64;
        return Some(Name { shard: u16::MAX, sort, number });
    };
    let (shard, file) = rest.split_once('/')?;
    if let Some(sort) = MARK.iter().position(|mark| *mark == file) {
        let sort = [Sort::Map, Sort::Unfinished][sort];
        return Some(Name { shard: shard.parse().ok()?, sort, number: u64::MAX });
    }
    let (stem, end) = file.split_once('.')?;
    let number: u64 = stem.parse().ok()?;
    // The numbers of unfinished snapshots and spare segments differ in the lowest bit, so that
    // their names never collide.
    let (sort, number) = match end {
        "rpj" => (Sort::Segment, number),
        "spare" => (Sort::Spare, number),
        "rps" => (Sort::Snapshot, number),
        "tmp" => (Sort::Unfinished, number << 1 | u64::from(stem.len() < 20)),
        "rpj.lost" => (Sort::Map, number << 1),
        "rps.lost" => (Sort::Map, number << 1 | 1),
        _ => return None,
    };
    Some(Name { shard: shard.parse().ok()?, sort, number })
}

/// The inverse of [`name`], without the directory.
fn file_name(name: Name) -> String {
    let Name { shard, sort, number } = name;
    if shard == u16::MAX {
        let own = usize::try_from(number).ok().and_then(|index| OWN.get(index)).unwrap_or(&"?");
        return if sort == Sort::Map { (*own).to_owned() } else { format!("{own}.tmp") };
    }
    match sort {
        Sort::Map if number == u64::MAX => MARK[0].to_owned(),
        Sort::Unfinished if number == u64::MAX => MARK[1].to_owned(),
        Sort::Map if number & 1 == 0 => format!("{:016}.rpj.lost", number >> 1),
        Sort::Map => format!("{:020}.rps.lost", number >> 1),
        Sort::Segment => format!("{number:016}.rpj"),
        Sort::Spare => format!("{number:016}.spare"),
        Sort::Snapshot => format!("{number:020}.rps"),
        Sort::Unfinished if number & 1 == 1 => format!("{:016}.tmp", number >> 1),
        Sort::Unfinished => format!("{:020}.tmp", number >> 1),
    }
}
