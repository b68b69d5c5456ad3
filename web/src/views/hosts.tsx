/** Hosts as a table: health, what they hold, what is wrong. For operators. */
import type { Host } from "../api/types";
import { Bar, State } from "../parts/basics";
import { Listing } from "../parts/listing";
import type { Column } from "../parts/table";
import { session } from "../api/session";
import { to } from "../route";
import { age, amount, noun, plain } from "../words";

/** How a host is: it starts until it is up for the first time, or again and clear of what it held. */
export const healthOfHost = (host: Host): string =>
  host.health === "enrolling" || host.returning_since ? "starting" : host.health;

/** What operators decided about a host, or else how it is. */
export const stateOfHost = (host: Host): string => (host.admin === "active" ? healthOfHost(host) : host.admin);

function used(host: Host): number {
  return Math.max(0, ...host.inventories.map((each) => (each.capacity ? each.committed / each.capacity : 0)));
}

const COLUMNS: Column<Host>[] = [
  { name: "Name", value: (host) => host.name, cell: (host) => <a href={to("hosts", host.name)}>{host.name}</a> },
  { name: "State", value: stateOfHost, cell: (host) => <State word={stateOfHost(host)} /> },
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
  { name: "Polled", value: (host) => host.last_polled_at ?? "", cell: (host) => (host.last_polled_at ? `${age(host.last_polled_at)} ago` : "never") },
  { name: "Last error", value: (host) => host.last_error ?? "", cell: (host) => plain(host.last_error ?? "-") },
  {
    name: "VMs",
    cell: (host) => <a href={`#/vms?host=${encodeURIComponent(host.name)}`}>show</a>,
  },
];

export function HostsView() {
  return (
    <Listing
      title="Hosts"
      label="hosts"
      path="hosts"
      searches
      line="fuga host list"
      columns={COLUMNS}
      keyOf={(host) => host.id}
      empty={
        <>
          No hosts. <code>fuga host add</code> adds one.
        </>
      }
    >
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
    </Listing>
  );
}
