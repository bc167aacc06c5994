import { linkOutput } from "./page/outputs";

for (const root of document.querySelectorAll<HTMLElement>(".mnb-linked:not([data-live])")) linkOutput(root);
