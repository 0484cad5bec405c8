//! The first example: a survey of a directory, with the scripted model.

use std::collections::BTreeMap;
use std::path::Path;

use ailoop_tests::cli::WorkDir;
use ailoop_tests::judge;
use serde_json::Value;
use simulation::rng::Rng;

use crate::e2e::events::parse_events;

/// Files with random names, extensions and sizes, some of them below other directories; path to bytes.
fn scatter(root: &Path) -> anyhow::Result<BTreeMap<String, usize>> {
    let mut random = random();
    let mut files = BTreeMap::new();
    for n in 0..random(7, 40) {
        let name = format!("{:06x}{n}", random(0, 0xff_ffff));
        let extension = ["md", "txt", "rs", "py", "json", "bin"][random(0, 6)];
        let dir = ["", "one/", "one/two/", "three/"][random(0, 4)];
        let line = format!("{name}: fn of the file {n}\n");
        let text = line.repeat(random(1, 50));
        let path = format!("{dir}{name}.{extension}");
        std::fs::create_dir_all(root.join(dir))?;
        std::fs::write(root.join(&path), &text)?;
        files.insert(path, text.len());
    }
    Ok(files)
}

/// Random numbers of a range, the end not included; `AILOOP_SURVEY_SEED` chooses them.
fn random() -> impl FnMut(usize, usize) -> usize {
    let mut rng = Rng::new(ailoop_tests::seed::of("AILOOP_SURVEY_SEED"));
    move |from, to| from + usize::try_from(rng.below((to - from) as u64)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn survey_of_a_directory_reports_its_files() -> anyhow::Result<()> {
    let work_dir = WorkDir::new()?;
    let root = work_dir.path().join("things");
    let files = scatter(&root)?;
    let total: usize = files.values().sum();

    let outcome = work_dir.run(["run", "--agent", "e", "--root", "things", "--out", "out", "survey this"]).await?;
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    for streamed in [
        "I am not a real model",
        &format!("There are {} files with {total} bytes", files.len()),
        "The survey is done: I wrote `survey.md`",
    ] {
        assert!(outcome.stdout.contains(streamed), "{streamed:?} is not in {}", outcome.stdout);
    }
    assert!(!outcome.stdout.contains("CONTINUE"), "the signal must not be printed: {}", outcome.stdout);
    assert!(outcome.stderr.contains("rehearsal"), "stderr does not say that the model is scripted: {}", outcome.stderr);

    let report = std::fs::read_to_string(work_dir.path().join("out/survey.md"))?;
    assert!(report.contains(&format!("{} files, {total} bytes.", files.len())), "{report}");
    let mut largest: Vec<_> = files.iter().collect();
    largest.sort_by_key(|(path, bytes)| (std::cmp::Reverse(**bytes), path.as_str()));
    let smallest_shown = largest.iter().map(|(_, bytes)| **bytes).nth(9).unwrap_or_default();
    for (path, bytes) in largest.iter().filter(|(_, bytes)| **bytes > smallest_shown) {
        assert!(report.contains(&format!("| `{path}` | {bytes} |")), "{path} ({bytes}) is not in {report}");
    }
    for extension in ["md", "txt", "rs", "py", "json", "bin"] {
        let of_kind: Vec<usize> = files
            .iter()
            .filter(|(path, _)| path.ends_with(&format!(".{extension}")))
            .map(|(_, bytes)| *bytes)
            .collect();
        let row = format!("| {extension} | {} | {} |", of_kind.len(), of_kind.iter().sum::<usize>());
        assert_eq!(report.contains(&row), !of_kind.is_empty(), "{row} in {report}");
    }
    let matches: usize = files
        .keys()
        .map(|path| std::fs::read_to_string(root.join(path)).map(|text| text.lines().count()))
        .sum::<Result<_, _>>()?;
    assert!(report.contains(&format!("{matches} matches in {} files", files.len())), "{matches} not in {report}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn survey_without_tool_calls_continues_by_its_signal() -> anyhow::Result<()> {
    let work_dir = WorkDir::new()?;
    scatter(&work_dir.path().join("things"))?;
    let outcome = work_dir.run(["run", "--agent", "e", "--root", "things", "--json", "survey this"]).await?;
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let events = parse_events(&outcome)?;
    judge::seqs(&events)?;
    let decisions: Vec<&Value> =
        events.iter().filter(|event| event.topic == "continuation.progress").map(|event| &event.data).collect();
    assert!(decisions.len() >= 4, "only {} steps", decisions.len());
    let by_signal = decisions.iter().any(|decision| {
        decision["continues"] == true
            && decision["source"] == "explicit"
            && decision["call_ids"] == Value::Array(vec![])
    });
    assert!(by_signal, "{decisions:?}");
    let last = decisions.last().unwrap();
    assert_eq!((&last["continues"], &last["status"]), (&false.into(), &"TERMINATE".into()));
    Ok(())
}
