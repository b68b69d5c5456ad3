/** Operators' views by the first word of the path; each is loaded when it is opened. */
import type { VNode } from "preact";
import { lazily } from "../../parts/lazy";

const HostMapView = lazily(() => import("./map"), "HostMapView");

export const SITE_VIEWS: Record<string, (second: string | undefined) => VNode> = {
  map: () => <HostMapView />,
};
