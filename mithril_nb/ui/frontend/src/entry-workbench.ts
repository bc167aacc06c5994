import { followSnapshot } from "./kernel/changes";
import { renderWith } from "./loader";

export default { initialize: followSnapshot, render: renderWith("mountWorkbench") };
