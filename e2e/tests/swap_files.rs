//! The ways in which another build gets into a module's file.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use operator_e2e::builds::Builds;
use operator_e2e::client::CONFIG_MAPS;
use operator_e2e::folder::Folder;
use operator_e2e::objects::config_map;
use operator_e2e::{Result, eventually, modules};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);

fn plan(version: &str) -> Value {
    json!({"plan": "probe", "version": version})
}

#[tokio::test]
async fn a_file_that_is_half_written_is_not_loaded_until_it_is_whole() -> Result<()> {
    let builds = Builds::start("half", &plan("0.1.0"), &[]).await?;
    let module = modules::probe_with(&plan("0.2.0")).await?;
    let (begin, rest) = module.split_at(module.len() / 2);
    fs::write(builds.file(), begin)?;
    builds.noted("the file ends after").await;
    builds.want("a", &[config_map("a", "1")]).await?;
    builds.settles("a").await;
    assert_eq!(builds.swaps(), 0, "{}", builds.swap_lines().join("\n"));
    let mut file = OpenOptions::new().append(true).open(builds.file())?;
    for piece in rest.chunks(64 << 10) {
        file.write_all(piece)?;
    }
    builds.swapped(1).await;
    builds.noted("module/probe ok").await;
    Ok(())
}

#[tokio::test]
async fn a_file_that_is_deleted_is_missed_and_taken_when_it_is_there_again() -> Result<()> {
    let builds = Builds::start("deleted", &plan("0.1.0"), &[]).await?;
    fs::remove_file(builds.file())?;
    builds.noted("no such file").await;
    builds.want("a", &[config_map("a", "1")]).await?;
    builds.settles("a").await;
    fs::write(builds.file(), modules::probe_with(&plan("0.2.0")).await?)?;
    builds.swapped(1).await;
    Ok(())
}

/// As the kubelet does it (pkg/volume/util/atomic_writer.go): a folder a version, and a link to it that is renamed over the one before.
async fn publish(volume: &Path, version: &str) -> Result<PathBuf> {
    let data = volume.join(format!("..{version}"));
    fs::create_dir(&data)?;
    fs::write(data.join("probe.wasm"), modules::probe_with(&plan(version)).await?)?;
    symlink(data.file_name().unwrap_or_default(), volume.join("..data_tmp"))?;
    fs::rename(volume.join("..data_tmp"), volume.join("..data"))?;
    Ok(data)
}

#[tokio::test]
async fn a_config_map_that_is_updated_is_followed_through_its_links() -> Result<()> {
    let folder = Folder::new("config-map")?;
    let before = publish(&folder, "0.1.0").await?;
    let file = folder.join("probe.wasm");
    symlink("..data/probe.wasm", &file)?;
    let builds = Builds::start_file("links", Folder::new("links")?, &file, &[]).await?;
    builds.want("a", &[config_map("a", "1")]).await?;
    builds.settles("a").await;
    publish(&folder, "0.2.0").await?;
    fs::remove_dir_all(before)?;
    builds.swapped(1).await;
    builds.object(&CONFIG_MAPS, "a", "it is still there", |_| true).await;
    Ok(())
}

#[tokio::test]
async fn a_file_is_not_followed_where_that_is_turned_off() -> Result<()> {
    let builds = Builds::start("off", &plan("0.1.0"), &["--watch=false"]).await?;
    let watches_folders =
        |builds: &Builds| -> Result<bool> { Ok(builds.host.open_files()?.iter().any(|file| file.contains("inotify"))) };
    let follows = Builds::start("on", &plan("0.1.0"), &[]).await?;
    eventually("the other host watches a folder", SOON, || async { watches_folders(&follows).unwrap_or(false) }).await;
    assert!(!watches_folders(&builds)?, "it watches a folder: {:?}", builds.host.open_files()?);
    Ok(())
}
