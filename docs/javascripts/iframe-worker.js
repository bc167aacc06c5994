// Browsers start no worker for a page opened as a file, and the search of the theme runs in a worker.
// This class runs the script of a worker in a hidden frame. Without it the theme loads one of this name from a CDN.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.appendChild(this.frame);
    const inside = this.frame.contentWindow;
    inside.postMessage = (data) => setTimeout(() => this.dispatchEvent(message(data)));
    inside.importScripts = async (...urls) => {
      for (const one of urls) await this.load(one);
    };
    this.loaded = this.load(new URL(url, location.href).href);
  }

  load(url) {
    const { document } = this.frame.contentWindow;
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = url;
      script.onload = resolve;
      script.onerror = reject;
      document.body.appendChild(script);
    });
  }

  postMessage(data) {
    this.loaded.then(() => this.frame.contentWindow.dispatchEvent(message(data)));
  }

  terminate() {
    this.frame.remove();
  }
}

function message(data) {
  return new MessageEvent("message", { data: structuredClone(data) });
}

if (location.protocol === "file:") {
  window.IFrameWorker = IFrameWorker; // the script of the worker looks for this name, to find its other files
  window.Worker = IFrameWorker;
}
