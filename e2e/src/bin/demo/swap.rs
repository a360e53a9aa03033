//! Another build in the module's file, then something that is none.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use operator_e2e::folder::Folder;
use operator_e2e::{Host, Result, eventually};

use crate::MODULE;
use crate::edited::{self, Edit};
use crate::narrator::{Demo, PATIENCE};

const EDITS: [Edit; 2] = [
    Edit {
        file: "src/children.rs",
        before: r#""metadata": { "name": name, "labels": { "app": name } },"#,
        after: r#""metadata": { "name": name, "labels": { "app": name, "tier": "web" } },"#,
    },
    Edit { file: "Cargo.toml", before: "version.workspace = true", after: "version = \"0.2.0\"" },
];

/// Gives the new build.
pub(crate) async fn another_build(demo: &Demo<'_>, host: &Host, folder: &Folder) -> Result<PathBuf> {
    demo.step("A new build of the module is swapped in while the host runs: one label more, one write a child").await?;
    let build = edited::build(&EDITS).await?;
    install(folder, &build)?;
    demo.logged(host, " swapped ").await;
    let children = children(demo, "").await?;
    eventually("every child to carry the new label", PATIENCE, || async {
        let labelled = self::children(demo, ",tier=web").await?;
        ensure!(labelled == children, "{labelled:?} of {children:?}");
        Ok(())
    })
    .await;
    demo.ready("webapp/shop", "3/3 replicas ready").await;
    demo.kubectl(&["get", "deployments,services", "-L", "tier"]).await?;
    demo.requests().await?;
    // A Deployment counts a changed annotation as a new generation, which its WebApp's status may show for a moment.
    let writes = demo.asked().await?.writes().matching(|record| record.subresource.is_empty());
    ensure!(writes.len() == children.len(), "{} children took {} writes:\n{writes}", children.len(), writes.len());
    println!("  children of the host: {}, writes of them: {}", children.len(), writes.len());
    Ok(build)
}

pub(crate) async fn garbage(demo: &Demo<'_>, host: &Host, folder: &Folder, build: &PathBuf) -> Result<()> {
    demo.step("Garbage in the file is refused and reported, and the build that runs serves on").await?;
    println!("$ echo garbage > {MODULE}");
    folder.write(MODULE, "garbage\n")?;
    demo.logged(host, "the module that runs stays").await;
    println!("$ curl -s 'localhost:8081/readyz?verbose' | grep module");
    let page = host.health("/readyz?verbose").await?;
    println!("  {}", page.lines().find(|line| line.contains("module")).context("/readyz names no module")?);
    demo.kubectl(&["scale", "webapp/shop", "--replicas=2"]).await?;
    demo.ready("webapp/shop", "2/2 replicas ready").await;
    demo.kubectl(&["get", "webapp/shop"]).await?;
    demo.requests().await?;
    install(folder, build)?;
    demo.logged(host, "the file holds what runs again").await;
    Ok(())
}

fn install(folder: &Folder, build: &PathBuf) -> Result<()> {
    println!("$ cp target/wasm32-unknown-unknown/guest/webapp.wasm {MODULE}");
    let content = std::fs::read(build).with_context(|| format!("cannot read {}", build.display()))?;
    folder.write(MODULE, content).map(drop)
}

/// Names of what the host made, in order; of those that also match the rest of a selector.
async fn children(demo: &Demo<'_>, and: &str) -> Result<Vec<String>> {
    let selector = format!("operatorhost.dev/installation{and}");
    let names = demo.kubectl_quietly(&["get", "deployments,services", "-o", "name", "-l", &selector]).await?;
    Ok(names.lines().map(str::to_owned).collect())
}
