"""The user interface in notebooks: sessions hold the state, widgets connect them to the front end in TypeScript."""
