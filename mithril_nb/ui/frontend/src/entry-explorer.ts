import { renderWith } from "./loader";

export default { render: renderWith("mountExplorer") };
