"""The table of a run: what became of every turn, and how long sessions noticed each disturbance."""

from .cluster import RUNNER_FAILED
from .manifests import Refused


def summary(cluster, rows, verdicts, outcomes):
    """Prints what became of every turn; gives the number of those that were lost or doubled, and of stalls."""
    words = ("refused", "unanswered", "lost", "doubled")
    if rows:
        print(f"\n  {'disturbance':34} {'turns':>5} {'refused':>7} {'unanswered':>10} {'lost':>4} {'doubled':>7} {'recovered, s':>12} {'slowest, s':>10}")
    for row in rows:
        found = [verdict.word for verdict in verdicts if verdict.turn in row.turns]
        refused, unanswered, lost, doubled = (found.count(word) for word in words)
        print(f"  {row.what:34} {len(found):5} {refused:7} {unanswered:10} {lost:4} {doubled:7} {row.recovered_seconds:12.1f} {row.slowest:10.1f}")
    counts = {word: sum(verdict.word == word for verdict in verdicts) for word in ("ok", *words)}
    if rows:
        slowest = max(rows, key=lambda row: row.slowest)
        print(f"\n  all {len(verdicts)} turns: {', '.join(f'{count} {word}' for word, count in counts.items())}; "
              f"the slowest took {slowest.slowest:.1f} s ({slowest.what})")
    for tool, results in sorted(outcomes.items()):
        print(f"  calls of {tool}: " + ", ".join(f"{results.count(outcome)} {outcome}" for outcome in sorted(set(results))))
    seen = {}
    for verdict in (verdict for verdict in verdicts if verdict.word != "ok"):
        what = verdict.turn.failure.splitlines()[0] if verdict.turn.failure else verdict.detail
        seen.setdefault((verdict.word, what), []).append(verdict.turn.session)
    for (word, what), sessions in seen.items():
        print(f"  {len(sessions)} {word}, such as {sessions[0]}: {what}")
    failures = [text for _, text in cluster.events if text.startswith(RUNNER_FAILED)]
    print("  not emulated: " + "; ".join(cluster.not_emulated()))
    if failures:
        raise Refused(f"the runner itself failed {len(failures)} times; see above")
    return counts["lost"] + counts["doubled"] + sum(row.recovered_seconds == float("inf") for row in rows)
