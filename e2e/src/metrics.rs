//! A page of `/metrics`, read as strictly as Prometheus' text format (version 0.0.4) allows.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail, ensure};

use crate::client::Client;
use crate::ports::Port;

/// Where a host shows its metrics.
#[derive(Debug)]
pub struct MetricsPort(Port);

impl MetricsPort {
    /// A free port.
    ///
    /// # Errors
    /// When there is none.
    pub fn free() -> crate::Result<Self> {
        Ok(Self(Port::free()?))
    }

    /// What tells the host of it.
    #[must_use]
    pub fn argument(&self) -> String {
        format!("--metrics-bind-address=127.0.0.1:{}", self.0)
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.0)
    }

    /// Asks for the page and reads it.
    ///
    /// # Errors
    /// When the host does not answer, or with what is no such page.
    pub async fn scrape(&self) -> crate::Result<Page> {
        let client = Client::new(&self.url(), None, None, "operator-e2e")?;
        Page::parse(&client.text("/metrics").await?)
    }
}

/// The labels of a series.
type Labels = BTreeMap<String, String>;

/// What a page says.
#[derive(Debug, Default)]
pub struct Page {
    /// Type of each family, by its name.
    types: BTreeMap<String, String>,
    series: BTreeMap<(String, Labels), f64>,
}

impl Page {
    /// Reads a page.
    ///
    /// # Errors
    /// When a line is no such text, stands where it may not, or says what contradicts another one.
    pub fn parse(text: &str) -> crate::Result<Self> {
        let (mut page, mut helped, mut family) = (Self::default(), BTreeSet::new(), String::new());
        ensure!(text.is_empty() || text.ends_with('\n'), "the last line has no end");
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, _) = help.split_once(' ').with_context(|| format!("no text: {line}"))?;
                ensure!(helped.insert(name.to_owned()), "a second help: {line}");
            } else if let Some(type_) = line.strip_prefix("# TYPE ") {
                let (name, type_) = type_.split_once(' ').with_context(|| format!("no type: {line}"))?;
                ensure!(is_name(name) && helped.contains(name), "no name that has a help: {line}");
                ensure!(["counter", "gauge", "histogram"].contains(&type_), "{line}");
                ensure!(page.types.insert(name.to_owned(), type_.to_owned()).is_none(), "a second type: {line}");
                name.clone_into(&mut family);
            } else {
                page.sample(&family, line).with_context(|| line.to_owned())?;
            }
        }
        page.check_histograms()?;
        Ok(page)
    }

    fn sample(&mut self, family: &str, line: &str) -> crate::Result<()> {
        let (name, labels, value) = match line.split_once('{') {
            Some((name, rest)) => {
                let (labels, value) = read_labels(rest)?;
                (name, labels, value)
            }
            None => line.split_once(' ').map(|(name, value)| (name, Labels::new(), value)).context("no value")?,
        };
        let of_family = match self.types.get(family).context("a value without a type")?.as_str() {
            "histogram" => ["_bucket", "_sum", "_count"].iter().any(|part| name == format!("{family}{part}")),
            _ => name == family,
        };
        ensure!(of_family, "it is not of {family}");
        let value: f64 = value.trim_start().parse().context("no number")?;
        ensure!(self.types[family] == "gauge" || value >= 0.0, "less than nothing");
        ensure!(self.series.insert((name.to_owned(), labels), value).is_none(), "a second value");
        Ok(())
    }

    /// Buckets count up to what there is in all.
    fn check_histograms(&self) -> crate::Result<()> {
        for (name, _) in self.types.iter().filter(|(_, type_)| *type_ == "histogram") {
            for (labels, count) in self.of(&format!("{name}_count")) {
                let mut buckets = Vec::new();
                for (bucket, value) in self.of(&format!("{name}_bucket")) {
                    let mut others = bucket.clone();
                    let bound = others.remove("le").context("a bucket without le")?;
                    if others == *labels {
                        buckets.push((bound.replace("Inf", "inf").parse::<f64>()?, value));
                    }
                }
                buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
                let last = buckets.last().copied();
                ensure!(last == Some((f64::INFINITY, count)), "{name}{labels:?}: {last:?} of {count}");
                ensure!(buckets.is_sorted_by_key(|(_, value)| *value), "{name}{labels:?}: {buckets:?}");
            }
        }
        Ok(())
    }

    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a Labels, f64)> {
        let series = self.series.iter().filter(move |((of, _), _)| of == name);
        series.map(|((_, labels), value)| (labels, *value))
    }

    /// The `# TYPE` lines, sorted.
    #[must_use]
    pub fn types(&self) -> Vec<String> {
        self.types.iter().map(|(name, type_)| format!("{name} {type_}")).collect()
    }

    /// The sum of the series of this name that carry these labels, among others.
    ///
    /// # Errors
    /// When there are none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> crate::Result<f64> {
        let carries = |of: &Labels| labels.iter().all(|(label, value)| of.get(*label).is_some_and(|of| of == value));
        let values: Vec<f64> = self.of(name).filter(|(of, _)| carries(of)).map(|(_, value)| value).collect();
        ensure!(!values.is_empty(), "no {name} with {labels:?}");
        Ok(values.iter().sum())
    }

    /// The values that a label of these series takes.
    #[must_use]
    pub fn values(&self, name: &str, label: &str) -> BTreeSet<String> {
        self.of(name).filter_map(|(labels, _)| labels.get(label).cloned()).collect()
    }

    /// The counters and histograms among its series that are not 0.
    #[must_use]
    pub fn counted(&self) -> BTreeMap<String, f64> {
        let gauges: BTreeSet<&String> =
            self.types.iter().filter(|(_, type_)| *type_ == "gauge").map(|(name, _)| name).collect();
        let counted = self.series.iter().filter(|((name, _), value)| !gauges.contains(name) && **value != 0.0);
        counted.map(|((name, labels), value)| (format!("{name}{labels:?}"), *value)).collect()
    }
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// `a="b",c="d"} 1`: the labels, and the text of the value.
fn read_labels(mut rest: &str) -> crate::Result<(Labels, &str)> {
    let mut labels = Labels::new();
    loop {
        let (name, value) = rest.split_once("=\"").context("no label")?;
        ensure!(is_name(name), "{name:?} is no name");
        let (mut text, mut letters) = (String::new(), value.char_indices());
        let end = loop {
            match letters.next().context("the value has no end")? {
                (end, '"') => break end,
                (_, '\\') => match letters.next().context("the value has no end")?.1 {
                    'n' => text.push('\n'),
                    plain @ ('\\' | '"') => text.push(plain),
                    other => bail!("\\{other} means nothing"),
                },
                (_, letter) => text.push(letter),
            }
        };
        ensure!(labels.insert(name.to_owned(), text).is_none(), "{name} twice");
        rest = &value[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return Ok((labels, rest.strip_prefix("} ").context("no value")?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"# HELP passes_total Passes.
# TYPE passes_total counter
passes_total{module="a",text="x\"y\\,\n"} 3
passes_total{module="b"} 4
# HELP seconds How long.
# TYPE seconds histogram
seconds_sum 0.5
seconds_count 2
seconds_bucket{le="0.1"} 1
seconds_bucket{le="+Inf"} 2
"#;

    #[test]
    fn a_page_is_read() {
        let page = Page::parse(PAGE).expect("a page");
        assert_eq!(page.types(), ["passes_total counter", "seconds histogram"]);
        assert_eq!(page.sum("passes_total", &[]).expect("there are"), 7.0);
        assert_eq!(page.sum("passes_total", &[("text", "x\"y\\,\n")]).expect("there is one"), 3.0);
        assert_eq!(page.sum("seconds_bucket", &[("le", "0.1")]).expect("there is one"), 1.0);
        assert!(page.sum("passes_total", &[("module", "c")]).is_err());
        assert_eq!(page.values("passes_total", "module"), ["a", "b"].map(str::to_owned).into());
    }

    #[test]
    fn a_page_that_is_none_is_refused() {
        let broken = [
            ("an end", PAGE.trim_end().to_owned()),
            ("a value", PAGE.replace(" 4\n", "\n")),
            ("a number", PAGE.replace(" 4\n", " four\n")),
            ("a type", PAGE.replace("# TYPE passes_total counter\n", "")),
            ("one value a series", PAGE.replace("module=\"b\"", r#"text="x\"y\\,\n",module="a""#)),
            ("its own family", PAGE.replace("passes_total{module=\"b\"}", "other")),
            ("a label's end", PAGE.replace("\"b\"", "\"b")),
            ("all in the last bucket", PAGE.replace("seconds_count 2", "seconds_count 3")),
            ("buckets that count up", PAGE.replace("{le=\"0.1\"} 1", "{le=\"0.1\"} 5")),
        ];
        for (lacks, page) in broken {
            assert!(Page::parse(&page).is_err(), "without {lacks}:\n{page}");
        }
    }
}
