/** Views that are loaded when they are first opened, so that the first page stays small. */
import type { ComponentType, VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Loading } from "./basics";

/** A view in a file of its own: `lazily(async () => (await import("./map")).HostMapView)`. */
export function lazily<P extends object>(load: () => Promise<ComponentType<P>>): (props: P) => VNode {
  let loaded: ComponentType<P> | null = null;
  return function Lazy(props: P): VNode {
    const [View, setView] = useState<ComponentType<P> | null>(() => loaded);
    const [failed, setFailed] = useState(false);
    const [tries, setTries] = useState(0);
    useEffect(() => {
      if (loaded !== null) return;
      setFailed(false);
      load().then(
        (found) => {
          loaded = found;
          setView(() => loaded);
        },
        () => setFailed(true),
      );
    }, [tries]);
    if (View !== null) return <View {...props} />;
    if (!failed) return <Loading />;
    return (
      <div class="message bad" role="alert">
        <p>This view cannot be loaded: the API does not answer, or was upgraded since you opened the page.</p>
        <p class="buttons">
          <button type="button" onClick={() => setTries(tries + 1)}>
            Try again
          </button>
          <button type="button" onClick={() => location.reload()}>
            Reload the page
          </button>
        </p>
      </div>
    );
  };
}
