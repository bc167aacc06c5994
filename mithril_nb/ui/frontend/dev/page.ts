/** A page that shows the workbench with a fixture and no kernel. `?dark` selects the theme, `?state=...` the state. */

import fixture from "../fixtures/mlp.json";
import assets from "../src/assets";
import workbench from "../src/entry-workbench";
import { type Fixture, FakeSession } from "./fake-model";
import { stateOf } from "./states";

const query = new URLSearchParams(location.search);
if (query.has("dark")) document.body.dataset["jpThemeLight"] = "false";
const session = new FakeSession(stateOf(fixture as unknown as Fixture, query.get("state") ?? ""));
assets.initialize();
workbench.render({ model: session, el: document.querySelector<HTMLElement>("#workbench")! });
Object.assign(globalThis, { session });
