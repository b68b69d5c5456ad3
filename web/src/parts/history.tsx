/** What happened to one thing, newest first. */
import { useLive } from "../api/live";
import type { Event, EventsPage } from "../api/types";
import { moment, plain, readable, shellWord } from "../words";
import { Command, Loading, Panel, ProblemMessage } from "./basics";

const SHOWN = 50;

export function History({ subject, name }: { subject: string; name: string }) {
  const { data, problem } = useLive<EventsPage>("events", { subject, newest: true, limit: SHOWN });
  return (
    <Panel title="History">
      <ProblemMessage problem={problem} />
      {data === null && problem === null && <Loading />}
      {data?.items.length === 0 && <p class="empty">Nothing is kept.</p>}
      <ol class="history">
        {data?.items.toReversed().map((event) => (
          <li key={event.id}>
            <time dateTime={event.at}>{moment(event.at)}</time>
            <span>{words(event)}</span>
          </li>
        ))}
      </ol>
      <Command
        line={`fuga events --subject ${shellWord(name)}`}
        calls={[{ path: `events?newest=true&limit=${SHOWN}&subject=${subject}` }]}
      />
    </Panel>
  );
}

export function words(event: Event): string {
  const change = event.to_state ? `: ${event.from_state ?? "new"} → ${event.to_state}` : "";
  return plain(readable(`${event.kind}${change}${event.reason ? ` (${event.reason})` : ""}`));
}
