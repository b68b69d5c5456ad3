/** Deleting one or many things, after a question. */
import { send } from "../api/client";
import { count, shellWord } from "../words";
import { ActionButton, some } from "./action_button";

interface Deletable {
  id: string;
  name: string;
}

interface Kind {
  what: string;
  command: string;
  consequence: string;
  /** Delete, if nothing else is said. */
  action?: string;
}

const KINDS = {
  vms: { what: "VM", command: "fuga rm", consequence: "Their disks are gone; their volumes stay." },
  requests: {
    what: "request",
    command: "fuga rm",
    consequence: "All their VMs end, and their disks are gone; their volumes stay.",
  },
  "ssh-keys": {
    what: "key",
    command: "fuga key remove",
    consequence: "New VMs do not get it; VMs that exist keep it.",
  },
  images: {
    what: "image",
    command: "fuga image remove",
    consequence: "It is removed from the store and from hosts. An image that is in use is refused.",
  },
  networks: {
    what: "network",
    command: "fuga network remove",
    consequence: "A network that a request or a VM uses is refused.",
  },
  reservations: {
    what: "reservation",
    command: "fuga reservation cancel",
    action: "Give back",
    consequence: "Their room is free from the next round on; VMs that drew on them stay.",
  },
  volumes: {
    what: "volume",
    command: "fuga volume remove",
    action: "Remove",
    consequence: "Everything on them is gone. A volume that a VM has is refused: detach it first. So is one that is protected.",
  },
  tokens: {
    what: "token",
    command: "fuga token revoke",
    consequence: "Whoever uses it is refused from now on.",
    action: "Revoke",
  },
} satisfies Record<string, Kind>;

export function DeleteButton(given: {
  things: Deletable[];
  path: keyof typeof KINDS;
  /** The words of the caller for it; ours say the same. */
  what?: string;
  onDone?: () => void;
}) {
  const { things, path } = given;
  const kind: Kind = KINDS[path];
  const action = kind.action ?? "Delete";
  const whole = (each: Deletable): string => `${path}/${encodeURIComponent(each.id)}`;
  return (
    <ActionButton
      things={things}
      action={action}
      danger
      title={`${action} ${count(things.length, kind.what)}?`}
      nameOf={(each) => each.name}
      act={(each) => send("DELETE", whole(each))}
      line={`${kind.command} ${some(things.map((each) => shellWord(each.name)))}`}
      call={(each) => ({ method: "DELETE", path: whole(each) })}
      onDone={given.onDone}
    >
      <p>{kind.consequence}</p>
    </ActionButton>
  );
}
