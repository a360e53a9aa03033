//! The records outside the cluster: a file for each site in a folder that is granted, as a DNS provider would have an entry.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use operator_guest::{Operator, Snapshot};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Where the folder is for the module, whatever is granted for it.
pub(crate) const FOLDER: &str = "/records";

/// What is published about a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Of the site.
    pub namespace: String,
    /// Of the site.
    pub name: String,
    /// Where its Service answers.
    pub url: String,
}

impl Record {
    pub(crate) fn of<O: Operator>(site: &Snapshot<O>) -> Self {
        let (name, namespace) = (site.name(), site.namespace().unwrap_or_default());
        Self { namespace: namespace.into(), name: name.into(), url: format!("http://{name}.{namespace}.svc") }
    }

    /// No name of an object has an underscore: two sites never share a file.
    pub(crate) fn file_name(&self) -> String {
        format!("{}_{}.json", self.namespace, self.name)
    }

    fn text(&self) -> String {
        format!("{}\n", json!(self))
    }
}

/// A folder of records.
pub(crate) struct Records {
    folder: PathBuf,
}

impl Records {
    pub(crate) fn granted() -> Self {
        Self::at(Path::new(FOLDER))
    }

    pub(crate) fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Writes the record, unless it is there as it should be. Nobody sees half of it: not even after a crash.
    pub(crate) fn publish(&self, record: &Record) -> io::Result<()> {
        self.check()?;
        let (path, text) = (self.folder.join(record.file_name()), record.text());
        if fs::read_to_string(&path).is_ok_and(|published| published == text) {
            return Ok(());
        }
        let unfinished = self.unfinished(record);
        let mut file = File::create(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(unfinished, path)
    }

    /// Removes the record, and what a crash left of one. "Already gone" is success.
    pub(crate) fn remove(&self, record: &Record) -> io::Result<()> {
        self.check()?;
        remove_file(&self.unfinished(record))?;
        remove_file(&self.folder.join(record.file_name()))
    }

    /// Without the folder nothing is known: a record is not "already gone".
    fn check(&self) -> io::Result<()> {
        fs::read_dir(&self.folder).map(drop)
    }

    fn unfinished(&self, record: &Record) -> PathBuf {
        self.folder.join(format!(".{}.unfinished", record.file_name()))
    }
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A folder of its own, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let next = NEXT.fetch_add(1, Ordering::Relaxed);
            let folder = std::env::temp_dir().join(format!("records-{}-{next}", std::process::id()));
            fs::create_dir(&folder).unwrap();
            Self(folder)
        }

        fn names(&self) -> Vec<String> {
            let mut names: Vec<_> =
                fs::read_dir(&self.0).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn record(namespace: &str, name: &str) -> Record {
        Record { namespace: namespace.into(), name: name.into(), url: format!("http://{name}.{namespace}.svc") }
    }

    #[test]
    fn a_record_is_published_once_and_says_where_the_site_is() {
        let folder = Folder::new();
        let (records, record) = (Records::at(&folder.0), record("sites", "hello"));
        records.publish(&record).unwrap();
        let path = folder.0.join("sites_hello.json");
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\"name\":\"hello\",\"namespace\":\"sites\",\"url\":\"http://hello.sites.svc\"}\n");

        let before = fs::metadata(&path).unwrap().modified().unwrap();
        records.publish(&record).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before, "the same record is not written again");
        assert_eq!(folder.names(), ["sites_hello.json"]);
    }

    #[test]
    fn a_record_that_somebody_changed_is_set_right() {
        let folder = Folder::new();
        let (records, record) = (Records::at(&folder.0), record("sites", "hello"));
        records.publish(&record).unwrap();
        fs::write(folder.0.join("sites_hello.json"), "{}").unwrap();
        records.publish(&record).unwrap();
        assert_eq!(fs::read_to_string(folder.0.join("sites_hello.json")).unwrap(), record.text());
    }

    #[test]
    fn two_sites_never_share_a_record() {
        assert_ne!(record("a", "b.c").file_name(), record("a.b", "c").file_name());
        assert_ne!(record("a-b", "c").file_name(), record("a", "b-c").file_name());
    }

    #[test]
    fn removing_is_harmless_however_often_and_whatever_a_crash_left() {
        let folder = Folder::new();
        let (records, record) = (Records::at(&folder.0), record("sites", "hello"));
        records.remove(&record).unwrap();
        records.publish(&record).unwrap();
        fs::write(folder.0.join(".sites_hello.json.unfinished"), "{").unwrap();
        records.remove(&record).unwrap();
        records.remove(&record).unwrap();
        assert_eq!(folder.names(), Vec::<String>::new());
    }

    #[test]
    fn what_a_crash_left_does_not_hinder_the_next() {
        let folder = Folder::new();
        let (records, record) = (Records::at(&folder.0), record("sites", "hello"));
        fs::write(
            folder.0.join(".sites_hello.json.unfinished"),
            "a much longer text than what is written now ".repeat(9),
        )
        .unwrap();
        records.publish(&record).unwrap();
        assert_eq!(folder.names(), ["sites_hello.json"]);
        assert_eq!(fs::read_to_string(folder.0.join("sites_hello.json")).unwrap(), record.text());
    }

    #[test]
    fn without_the_folder_no_record_is_gone() {
        let records = Records::at(Path::new("/nowhere/records"));
        assert!(records.remove(&record("sites", "hello")).is_err());
        assert!(records.publish(&record("sites", "hello")).is_err());
    }
}
