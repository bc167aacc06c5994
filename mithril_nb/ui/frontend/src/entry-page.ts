import { mountPage } from "./page/page";

void mountPage(document.querySelector<HTMLElement>(".mnb-page")!, document.getElementById("mnb-data")!);
