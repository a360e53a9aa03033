//! The file of a module, followed, whoever changes it and in whatever way.
//!
//! In: a path. Out: its content, each time that it has come to rest as another ([`Follower`] decides that). The folder is watched and
//! not the file, so that it may be renamed over, deleted and made anew, or be a link into a ConfigMap's volume. What the system does not
//! tell of, as on network file systems or behind a link that leads elsewhere, is found by asking every [`POLL`].

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use operator_core::follow::Follower;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::module::preflight::{LoadError, Problem};
use crate::module::{cache, source};

/// How often a file is looked at of whose folder nothing is heard.
const POLL: Duration = Duration::from_secs(10);

/// Tells that something happened in one of the folders that are watched.
#[derive(Debug)]
pub struct Folders {
    /// None where the system has no more to give.
    watcher: Mutex<Option<RecommendedWatcher>>,
    happened: watch::Sender<()>,
}

impl Default for Folders {
    fn default() -> Self {
        let happened = watch::Sender::new(());
        let tell = happened.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // An error may stand for events that were lost.
            if event.is_err() || event.is_ok_and(|event| !is_reading(event.kind)) {
                tell.send_replace(());
            }
        });
        let watcher = watcher.inspect_err(|error| {
            tracing::info!(%error, "changed module files are found by asking every {POLL:?}, the system tells of none");
        });
        Self { watcher: Mutex::new(watcher.ok()), happened }
    }
}

impl Folders {
    /// Watches the folder of a file. To be called again and again: another folder may have taken its place.
    fn watch(&self, file: &Path) {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        let watched = watcher.as_mut().map(|watcher| watcher.watch(folder, RecursiveMode::NonRecursive));
        if let Some(Err(error)) = watched {
            tracing::debug!(%error, folder = %folder.display(), "the folder of a module can't be watched; asked again");
        }
    }
}

/// Whether nothing but reading is told, as by this host.
fn is_reading(kind: EventKind) -> bool {
    matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}

/// A file that is followed.
#[derive(Debug)]
pub struct ModuleFile {
    path: PathBuf,
    folders: Arc<Folders>,
    happened: watch::Receiver<()>,
    follower: Follower<Option<Stamp>, Result<String, Problem>>,
    /// When its folder was last asked to be watched.
    watched: Option<Instant>,
    poll: Duration,
}

/// What a file held.
#[derive(Debug)]
pub struct Content {
    /// SHA-256, in hexadecimal.
    pub digest: String,
    /// All of it.
    pub bytes: Vec<u8>,
}

impl Content {
    fn read(path: &Path) -> Result<Self, Problem> {
        let bytes = source::read_file(path)?;
        Ok(Self { digest: cache::hex(&Sha256::digest(&bytes)), bytes })
    }
}

/// What a write, a rename or a link that leads elsewhere changes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &Metadata) -> Self {
        Self {
            file: (file.dev(), file.ino()),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

impl ModuleFile {
    /// Follows the file of this path.
    pub fn new(path: PathBuf, folders: Arc<Folders>) -> Self {
        let happened = folders.happened.subscribe();
        Self { path, folders, happened, follower: Follower::default(), watched: None, poll: POLL }
    }

    /// Its path, as the user gave it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the file has come to rest as it was not given yet, and gives what it holds; the first time, what it holds now.
    /// Dropping the answer loses nothing.
    ///
    /// # Errors
    /// It has come to rest as something that can't be read: gone, a folder, too large.
    pub async fn settled(&mut self) -> Result<Content, LoadError> {
        loop {
            self.watch_folder().await;
            if let Some(found) = self.look().await {
                return found.map_err(|problem| LoadError::new(&self.path, problem));
            }
            match self.follower.due() {
                // Whoever writes many small pieces is not looked at for each.
                Some(due) => tokio::time::sleep_until(due.into()).await,
                // Err: the time is over, or nobody tells.
                None => _ = tokio::time::timeout(self.poll, self.happened.changed()).await,
            }
        }
    }

    async fn watch_folder(&mut self) {
        if self.watched.is_some_and(|last| last.elapsed() < self.poll) {
            return;
        }
        self.watched = Some(Instant::now());
        let (folders, path) = (Arc::clone(&self.folders), self.path.clone());
        blocking(move || folders.watch(&path)).await;
    }

    async fn look(&mut self) -> Option<Result<Content, Problem>> {
        let path = self.path.clone();
        let stamp = blocking(move || path.metadata().ok().as_ref().map(Stamp::of)).await;
        if !self.follower.is_news(&stamp) {
            return None;
        }
        let path = self.path.clone();
        let found = blocking(move || Content::read(&path)).await;
        let content = found.as_ref().map(|content| content.digest.clone()).map_err(Problem::clone);
        self.follower.read(Instant::now(), stamp, content).then_some(found)
    }
}

/// What may wait for a disk or a network is not done on the threads of the runtime.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends: nobody waits for the answer.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Far longer than it takes, on a machine that does much else.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// A file in a folder of its own, and who follows it.
    struct Followed {
        folder: PathBuf,
        file: ModuleFile,
    }

    impl Followed {
        fn new(folders: Folders) -> Self {
            let folder = std::env::temp_dir().join(format!("operator-host-{:016x}", fastrand::u64(..)));
            fs::create_dir(&folder).expect("a new folder");
            let file = ModuleFile::new(folder.join("module.wasm"), Arc::new(folders));
            Self { folder, file }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.join(name)
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.path(name), text).expect("a file");
        }

        fn rename(&self, from: &str, to: &str) {
            fs::rename(self.path(from), self.path(to)).expect("a file to rename");
        }

        async fn next(&mut self) -> Result<String, Problem> {
            let settled = tokio::time::timeout(PATIENCE, self.file.settled()).await.expect("nothing was noticed");
            let text = |content: Content| String::from_utf8(content.bytes).expect("a text");
            settled.map(text).map_err(|error| error.problem)
        }

        async fn gives(&mut self, text: &str) {
            assert_eq!(self.next().await, Ok(text.to_owned()));
        }
    }

    impl Drop for Followed {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    #[tokio::test]
    async fn a_file_is_followed_in_whatever_way_it_is_replaced() {
        let mut followed = Followed::new(Folders::default());
        followed.write("module.wasm", "as it was");
        followed.gives("as it was").await;
        followed.write("module.wasm", "written over");
        followed.gives("written over").await;
        followed.write(".module.wasm.swp", "renamed over");
        followed.rename(".module.wasm.swp", "module.wasm");
        followed.gives("renamed over").await;
        followed.rename("module.wasm", "module.wasm~");
        assert_eq!(followed.next().await, Err(Problem::NotFound));
        followed.write("module.wasm", "made anew");
        followed.gives("made anew").await;
        fs::remove_file(followed.path("module.wasm")).expect("it is there");
        fs::create_dir(followed.path("module.wasm")).expect("the name is free");
        assert_eq!(followed.next().await, Err(Problem::Directory));
    }

    #[tokio::test]
    async fn a_config_map_is_followed_through_its_links() {
        let mut followed = Followed::new(Folders::default());
        let publish = |followed: &Followed, version: &str| {
            fs::create_dir(followed.path(version)).expect("a new folder");
            followed.write(&format!("{version}/module.wasm"), version);
            symlink(version, followed.path("..data_tmp")).expect("a link");
            followed.rename("..data_tmp", "..data");
        };
        publish(&followed, "..2026_01");
        symlink("..data/module.wasm", followed.path("module.wasm")).expect("a link");
        followed.gives("..2026_01").await;
        publish(&followed, "..2026_02");
        fs::remove_dir_all(followed.path("..2026_01")).expect("it is there");
        followed.gives("..2026_02").await;
    }

    #[tokio::test]
    async fn a_file_that_is_written_slowly_is_given_when_it_is_whole() {
        let mut followed = Followed::new(Folders::default());
        followed.write("module.wasm", "before");
        followed.gives("before").await;
        let mut writer = fs::File::create(followed.path("module.wasm")).expect("a file");
        let writing = std::thread::spawn(move || {
            for piece in ["in ", "several ", "pieces"] {
                writer.write_all(piece.as_bytes()).expect("the disk has room");
                std::thread::sleep(operator_core::follow::REST / 3);
            }
        });
        followed.gives("in several pieces").await;
        writing.join().expect("it wrote");
    }

    #[tokio::test]
    async fn a_file_is_followed_where_the_system_tells_nothing() {
        let deaf = Folders { watcher: Mutex::new(None), happened: watch::Sender::new(()) };
        let mut followed = Followed::new(deaf);
        followed.file.poll = Duration::from_millis(20);
        followed.write("module.wasm", "one");
        followed.gives("one").await;
        followed.write("module.wasm", "other");
        followed.gives("other").await;
    }

    #[tokio::test]
    async fn a_folder_that_comes_later_or_is_another_is_watched_all_the_same() {
        let mut followed = Followed::new(Folders::default());
        followed.file.poll = Duration::from_millis(20);
        fs::remove_dir(&followed.folder).expect("it is empty");
        assert_eq!(followed.next().await, Err(Problem::NotFound));
        fs::create_dir(&followed.folder).expect("the name is free");
        followed.write("module.wasm", "later");
        followed.gives("later").await;
    }
}
