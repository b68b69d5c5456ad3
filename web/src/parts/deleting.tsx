/** Deleting one or many things, after a question. */
import { send } from "../api/client";
import { count, shellWord } from "../words";
import { Acting, some } from "./acting";

interface Deletable {
  id: string;
  name: string;
}

interface Kind {
  what: string;
  command: string;
  consequence: string;
}

const KINDS = {
  vms: { what: "VM", command: "fuga rm", consequence: "Their disks are gone." },
  requests: {
    what: "request",
    command: "fuga rm",
    consequence: "All their VMs end, and their disks are gone.",
  },
  "ssh-keys": {
    what: "key",
    command: "fuga key remove",
    consequence: "VMs that are created from now on do not get it; those that exist keep it.",
  },
  images: {
    what: "image",
    command: "fuga image remove",
    consequence: "The store and the hosts forget it. One that is used is refused.",
  },
  networks: {
    what: "network",
    command: "fuga network remove",
    consequence: "One that a request or a VM uses is refused.",
  },
  tokens: { what: "token", command: "fuga token revoke", consequence: "Whoever uses it is refused at once." },
} satisfies Record<string, Kind>;

export function Deleting(given: {
  things: Deletable[];
  path: keyof typeof KINDS;
  /** The words of the caller for it; ours say the same. */
  what?: string;
  onDone?: () => void;
}) {
  const { things, path } = given;
  const kind: Kind = KINDS[path];
  const action = path === "tokens" ? "Revoke" : "Delete";
  const whole = (each: Deletable): string => `${path}/${encodeURIComponent(each.id)}`;
  return (
    <Acting
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
    </Acting>
  );
}
