// The console of ailoop: starts the connection and draws the view that the address names.

import { render } from "preact";
import { followCaller } from "./core/caller.ts";
import { followKeyInAddress, rpc } from "./core/connection.ts";
import { followKeys } from "./core/keys.ts";
import { startClock } from "./core/poll.ts";
import { followAddress } from "./core/route.ts";
import { Shell } from "./shell.tsx";
import { applyTheme } from "./ui/theme.ts";
import "./style.css";

applyTheme();
followKeyInAddress();
followAddress();
followKeys();
startClock();
followCaller();
rpc.connect();
const root = document.getElementById("app");
// The frame of the page is in its HTML, so that it is painted before the scripts have run.
root?.replaceChildren();
if (root !== null) render(<Shell />, root);
