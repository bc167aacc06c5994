import { Output } from "./page/outputs";

for (const root of document.querySelectorAll<HTMLElement>(".mnb-linked:not([data-live])")) new Output(root);
