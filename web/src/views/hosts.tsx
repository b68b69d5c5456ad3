/** Hosts as a table: health, what they hold, what is wrong. For operators. */
import { useRows } from "../api/live";
import type { Host } from "../api/types";
import { Bar, Command, Loading, State, Told } from "../parts/basics";
import { type Column, Table } from "../parts/table";
import { session } from "../api/session";
import { to } from "../route";
import { age, amount, noun } from "../words";

const stateOf = (host: Host): string => (host.admin === "active" ? host.health : host.admin);

function used(host: Host): number {
  return Math.max(0, ...host.inventories.map((each) => (each.capacity ? each.committed / each.capacity : 0)));
}

const COLUMNS: Column<Host>[] = [
  { name: "Name", value: (host) => host.name, cell: (host) => <a href={to("hosts", host.name)}>{host.name}</a> },
  { name: "State", value: stateOf, cell: (host) => <State word={stateOf(host)} /> },
  {
    name: "Committed",
    value: used,
    cell: (host) => (
      <span class="inventory">
        {host.inventories.map((each) => (
          <span key={each.resource}>
            <span class="hint">
              {noun(each.resource)} {amount(each.resource, each.committed)} of {amount(each.resource, each.capacity)}
            </span>
            <Bar
              part={each.capacity ? each.committed / each.capacity : 0}
              label={`${noun(each.resource)}: ${each.committed} of ${each.capacity} committed`}
            />
          </span>
        ))}
      </span>
    ),
  },
  { name: "Labels", value: (host) => host.labels.join(" "), cell: (host) => host.labels.join(", ") || "-" },
  { name: "Polled", value: (host) => host.last_polled_at ?? "", cell: (host) => `${age(host.last_polled_at)} ago` },
  { name: "Last error", value: (host) => host.last_error ?? "", cell: (host) => host.last_error ?? "-" },
  {
    name: "VMs",
    value: () => "",
    cell: (host) => <a href={`#/vms?host=${encodeURIComponent(host.name)}`}>show</a>,
  },
];

export function HostsView() {
  const { data, problem } = useRows<Host>("hosts");
  return (
    <>
      <h1>Hosts</h1>
      <p class="buttons">
        <a class="button" href="#/map">
          Show them as a map
        </a>
        {!session.readOnly && (
          <a class="button" href="#/host-add">
            Register a host
          </a>
        )}
      </p>
      <Told problem={problem} />
      {data === null ? (
        problem === null && <Loading />
      ) : (
        <Table
          label="hosts"
          columns={COLUMNS}
          rows={data.rows}
          more={data.more}
          keyOf={(host) => host.id}
          empty="No hosts. `fuga host add` adds one."
        />
      )}
      <Command line="fuga host list" calls={[{ path: "hosts?limit=500" }]} />
    </>
  );
}
