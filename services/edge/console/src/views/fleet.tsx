// The processes of the fleet, its queues and what it stores.

import { isForbidden } from "../core/connection.ts";
import { formatBytes, formatCount, formatDuration, plural } from "../core/format.ts";
import { usePoll } from "../core/poll.ts";
import type { FleetStatus, Replica } from "../core/types.ts";
import { Age, Badge, Empty, Meter, PageHead, Problem, Section } from "../ui/parts.tsx";
import { Table } from "../ui/table.tsx";
import { Visible } from "../ui/text.tsx";

export function FleetView() {
  const { data, error } = usePoll<FleetStatus>("fleet.status", {}, 4000);
  if (isForbidden(error))
    return (
      <div class="page">
        <Empty title="Your key may not see the fleet">It needs the scope operate.</Empty>
      </div>
    );
  const versions = new Set(data?.replicas.map((replica) => replica.version));
  return (
    <div class="page">
      <PageHead
        title="Fleet"
        sub={
          data &&
          `${plural(data.replicas.length, "replica")}, ${versions.size === 1 ? `version ${[...versions].join()}` : plural(versions.size, "version")}`
        }
      />
      {error && <Problem error={error} />}
      {data === undefined && !error && <p class="muted">Asking the processes of the fleet …</p>}
      {data && (
        <>
          <Section title="Replicas" class="table-scroll">
            <Table
              rows={data.replicas}
              columns={[
                { head: "Service", cell: (replica) => replica.service },
                { head: "Replica", cell: (replica) => <code>{replica.replica}</code> },
                { head: "State", cell: (replica) => <State replica={replica} /> },
                {
                  head: "Version",
                  cellTitle: (replica) => replica.commit,
                  cell: (replica) => (
                    <>
                      {replica.version}{" "}
                      <span class="muted">
                        {replica.commit.slice(0, 8)}, fold {replica.fold}
                      </span>
                    </>
                  ),
                },
                { head: "Up", cell: (replica) => <Age at={replica.started} /> },
                { head: "Work", cell: (replica) => <Work replica={replica} /> },
              ]}
            />
          </Section>
          <div class="columns">
            <Section title="Queues" class="table-scroll">
              <Table
                rows={data.queues}
                columns={[
                  { head: "Queue", cell: (queue) => queue.queue },
                  { head: "Waiting", isNumber: true, cell: (queue) => formatCount(queue.waiting) },
                  { head: "Held", isNumber: true, cell: (queue) => formatCount(queue.held) },
                  { head: "Workers asking", isNumber: true, cell: (queue) => queue.pullers ?? "–" },
                  {
                    head: "Oldest",
                    isNumber: true,
                    cell: ({ oldest_ms }) => (oldest_ms === undefined ? "–" : formatDuration(oldest_ms)),
                  },
                ]}
              />
            </Section>
            <Section title="Storage" class="table-scroll">
              <Table
                rows={data.storage}
                columns={[
                  { head: "Stream or store", cell: (store) => <code>{store.name}</code> },
                  { head: "Messages", isNumber: true, cell: (store) => formatCount(store.messages) },
                  { head: "Size", isNumber: true, cell: (store) => formatBytes(store.bytes) },
                ]}
              />
            </Section>
          </div>
        </>
      )}
    </div>
  );
}

function State({ replica }: { replica: Replica }) {
  const ahead = replica.clock_ahead_ms;
  return (
    <>
      <Badge tone={replica.waiting_for.length > 0 ? "bad" : replica.warnings.length > 0 ? "wait" : "good"}>
        {replica.waiting_for.length > 0
          ? `waits for ${replica.waiting_for.join(", ")}`
          : replica.warnings.length > 0
            ? "warning"
            : "ready"}
      </Badge>
      {replica.warnings.map((warning) => (
        <div class="badge-wait">
          <Visible text={warning} isProse />
        </div>
      ))}
      {Math.abs(ahead) > 1000 && (
        <div class="badge-wait">
          its clock is {formatDuration(Math.abs(ahead))} {ahead > 0 ? "ahead" : "behind"}
        </div>
      )}
    </>
  );
}

function Work({ replica }: { replica: Replica }) {
  return (
    <>
      {Object.entries(replica.work ?? {}).map(([queue, work]) => (
        <div class="work">
          <span>
            {queue} {work.running}/{work.max}
          </span>
          <Meter
            value={work.running}
            max={work.max}
            label={`${queue} of ${replica.replica}`}
            tone={work.running >= work.max ? "bad" : "calm"}
          />
        </div>
      ))}
    </>
  );
}
