/** Networks that requests may name; operators make them. */
import { session } from "../api/session";
import type { Network } from "../api/types";
import { Bar } from "../parts/basics";
import { DeleteButton } from "../parts/delete_button";
import { Listing } from "../parts/listing";
import type { Column } from "../parts/table";

const COLUMNS: Column<Network>[] = [
  { name: "Name", value: (each) => each.name, cell: (each) => each.name },
  { name: "Of", value: (each) => each.tenant ?? "", cell: (each) => each.tenant ?? "the operators" },
  { name: "Subnet", value: (each) => each.subnet?.cidr ?? "", cell: (each) => each.subnet?.cidr ?? "DHCP" },
  {
    name: "Addresses",
    value: (each) => each.addresses_used,
    cell: (each) =>
      each.subnet === null ? (
        "-"
      ) : (
        <>
          {each.addresses_used} of {each.addresses}
          <Bar
            part={each.addresses ? each.addresses_used / each.addresses : 0}
            over={each.addresses_used >= each.addresses}
            label={`${each.addresses_used} of ${each.addresses} addresses used`}
          />
        </>
      ),
  },
  {
    name: "VMs",
    value: (each) => (each.isolated ? "apart" : "together"),
    cell: (each) =>
      [each.isolated ? "do not reach each other" : "reach each other", each.filtered && "only their own addresses"]
        .filter(Boolean)
        .join("; "),
  },
];

export function NetworksView() {
  return (
    <Listing
      title="Networks"
      label="networks"
      path="networks"
      line="fuga network list"
      columns={COLUMNS}
      keyOf={(each) => each.name}
      nameOf={(each) => each.name}
      empty="No networks: VMs are attached to their host's own."
      actions={
        session.isOperator && !session.readOnly
          ? (chosen, clear) => (
              <DeleteButton things={chosen.map(({ name }) => ({ id: name, name }))} path="networks" onDone={clear} />
            )
          : undefined
      }
    />
  );
}
