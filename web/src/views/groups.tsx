/** VM groups: which VMs keep together or apart, and where they are. */
import type { VmGroup } from "../api/types";
import { Listing } from "../parts/listing";
import { aged, type Column } from "../parts/table";
import { to } from "../route";
import { count, readable, shortId } from "../words";

const COLUMNS: Column<VmGroup>[] = [
  { name: "Name", value: (each) => each.name, cell: (each) => each.name },
  { name: "Tenant", value: (each) => each.tenant, cell: (each) => each.tenant },
  {
    name: "Rule",
    value: (each) => each.rule,
    cell: (each) => `${readable(each.rule)}${each.soft ? ", if possible" : ""}`,
  },
  { name: "VMs", value: (each) => each.vms, cell: (each) => each.vms, numeric: true },
  {
    name: "On",
    value: (each) => Object.keys(each.hosts).join(" "),
    cell: (each) =>
      Object.entries(each.hosts)
        .map(([host, vms]) => `${host}: ${String(vms)}`)
        .join(", ") || "-",
  },
  {
    name: "Requests",
    value: (each) => each.requests.length,
    cell: (each) => (
      <>
        {each.requests.slice(0, 5).map((id) => (
          <span key={id}>
            <a href={to("requests", id)}>{shortId(id)}</a>{" "}
          </span>
        ))}
        {each.requests.length > 5 && `and ${count(each.requests.length - 5, "other")}`}
      </>
    ),
  },
  aged((each) => each.created_at),
];

export function GroupsView() {
  return (
    <Listing
      title="VM groups"
      label="VM groups"
      path="vm-groups"
      line="fuga vm-groups"
      columns={COLUMNS}
      keyOf={(each) => each.id}
      empty="No VM groups. A request that names one makes it."
    />
  );
}
