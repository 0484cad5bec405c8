// The processes of the fleet, its queues and what it stores.

import { isForbidden } from "../core/connection.ts";
import { formatBytes, formatCount, formatDuration, plural } from "../core/format.ts";
import { usePoll } from "../core/poll.ts";
import type { FleetStatus } from "../core/types.ts";
import { Age, Badge, Empty, Meter, PageHead, Problem } from "../ui/parts.tsx";
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
          <section class="section">
            <h2>Replicas</h2>
            <div class="card table-scroll">
              <table class="plain">
                <thead>
                  <tr>
                    <th scope="col">Service</th>
                    <th scope="col">Replica</th>
                    <th scope="col">State</th>
                    <th scope="col">Version</th>
                    <th scope="col">Up</th>
                    <th scope="col">Work</th>
                  </tr>
                </thead>
                <tbody>
                  {data.replicas.map((replica) => (
                    <tr>
                      <td>{replica.service}</td>
                      <td>
                        <code>{replica.replica}</code>
                      </td>
                      <td>
                        <Badge
                          tone={replica.waiting_for.length > 0 ? "bad" : replica.warnings.length > 0 ? "wait" : "good"}
                        >
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
                        {Math.abs(replica.clock_ahead_ms) > 1000 && (
                          <div class="badge-wait">
                            its clock is {formatDuration(Math.abs(replica.clock_ahead_ms))}{" "}
                            {replica.clock_ahead_ms > 0 ? "ahead" : "behind"}
                          </div>
                        )}
                      </td>
                      <td title={replica.commit}>
                        {replica.version}{" "}
                        <span class="muted">
                          {replica.commit.slice(0, 8)}, fold {replica.fold}
                        </span>
                      </td>
                      <td>
                        <Age at={replica.started} />
                      </td>
                      <td>
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
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          </section>
          <div class="columns">
            <section class="section">
              <h2>Queues</h2>
              <div class="card table-scroll">
                <table class="plain">
                  <thead>
                    <tr>
                      <th scope="col">Queue</th>
                      <th scope="col" class="number">
                        Waiting
                      </th>
                      <th scope="col" class="number">
                        Held
                      </th>
                      <th scope="col" class="number">
                        Workers asking
                      </th>
                      <th scope="col" class="number">
                        Oldest
                      </th>
                    </tr>
                  </thead>
                  <tbody>
                    {data.queues.map((queue) => (
                      <tr>
                        <td>{queue.queue}</td>
                        <td class="number">{formatCount(queue.waiting)}</td>
                        <td class="number">{formatCount(queue.held)}</td>
                        <td class="number">{queue.pullers ?? "–"}</td>
                        <td class="number">{queue.oldest_ms === undefined ? "–" : formatDuration(queue.oldest_ms)}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            </section>
            <section class="section">
              <h2>Storage</h2>
              <div class="card table-scroll">
                <table class="plain">
                  <thead>
                    <tr>
                      <th scope="col">Stream or store</th>
                      <th scope="col" class="number">
                        Messages
                      </th>
                      <th scope="col" class="number">
                        Size
                      </th>
                    </tr>
                  </thead>
                  <tbody>
                    {data.storage.map((store) => (
                      <tr>
                        <td>
                          <code>{store.name}</code>
                        </td>
                        <td class="number">{formatCount(store.messages)}</td>
                        <td class="number">{formatBytes(store.bytes)}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            </section>
          </div>
        </>
      )}
    </div>
  );
}
