/** Power of one or many VMs. */
import { newKey, send } from "../api/client";
import type { Vm } from "../api/types";
import { shellWord } from "../words";
import { ActionButton, some } from "./action_button";

const SWITCHES = [
  ["start", "Start", "stopped"],
  ["stop", "Stop", "running"],
  ["reboot", "Reboot", "running"],
] as const;

export function PowerButtons({ vms, onDone }: { vms: Vm[]; onDone?: () => void }) {
  return (
    <>
      {SWITCHES.map(([what, name, from]) => {
        const possible = vms.filter((vm) => vm.host && vm.desired === from);
        // One intention has one key, however often a lost call is sent again.
        const keys = new Map(possible.map((vm) => [vm.id, newKey()]));
        const many = possible.length > 1;
        return (
          <ActionButton
            key={what}
            things={possible}
            action={name}
            disabled={possible.length === 0}
            nameOf={(vm) => vm.name}
            act={(vm) => send("POST", `vms/${vm.id}/${what}`, { body: {}, key: keys.get(vm.id) ?? newKey() })}
            line={`fuga ${what} ${some(possible.map((vm) => shellWord(vm.name)))}`}
            call={(vm) => ({ method: "POST", path: `vms/${vm.id}/${what}`, body: {} })}
            onDone={onDone}
            {...(many ? { title: `${name} ${possible.length} VMs?` } : {})}
          />
        );
      })}
    </>
  );
}
