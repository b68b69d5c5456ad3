/** What happened, newest first. */
import type { Event } from "../api/types";
import { Listing } from "../parts/listing";
import { words } from "../parts/history";
import type { Column } from "../parts/table";
import { to } from "../route";
import { moment, readable } from "../words";

const SHOWS: Record<string, string> = { vm: "vms", request: "requests" };

function Subject({ event }: { event: Event }) {
  const view = Object.hasOwn(SHOWS, event.subject_type) ? SHOWS[event.subject_type] : undefined;
  const name = event.subject_name ?? event.subject_id;
  return (
    <>
      {readable(event.subject_type)}{" "}
      {view ? <a href={to(view, event.subject_id)}>{name}</a> : name === event.subject_type ? "" : name}
    </>
  );
}

const COLUMNS: Column<Event>[] = [
  { name: "At", value: (event) => -event.id, sortsOnly: true, cell: (event) => <time dateTime={event.at}>{moment(event.at)}</time> },
  { name: "What", value: words, cell: words },
  {
    name: "About",
    value: (event) => `${event.subject_type} ${event.subject_name ?? event.subject_id}`,
    cell: (event) => <Subject event={event} />,
  },
  { name: "By", value: (event) => event.actor, cell: (event) => event.actor },
];

export function EventsView() {
  return (
    <Listing
      title="Events"
      label="events"
      path="events"
      queries={[{ newest: true }]}
      order={(rows) => rows.toReversed()}
      line="fuga events --last 500"
      columns={COLUMNS}
      keyOf={(event) => String(event.id)}
      empty="Nothing is kept."
    />
  );
}
