// Browsers start no worker from a file on disk, and search is one. There, a hidden frame does its work.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      const inner = this.frame.contentWindow
      window.addEventListener("message", event => {
        if (event.source !== inner) return
        const message = new MessageEvent("message", { data: event.data })
        this.dispatchEvent(message)
        if (this.onmessage) this.onmessage(message)
      })
      // What the script of a worker expects: postMessage goes to who made it, and scripts can be loaded.
      inner.document.open()
      inner.document.write(`<html><body><script>
        window.postMessage = data => parent.postMessage.call(parent, data, "*")
        window.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done, fail) => {
          const script = document.createElement("script")
          Object.assign(script, { src: url, onload: done, onerror: fail })
          document.body.appendChild(script)
        })), Promise.resolve())
      <\/script></body></html>`)
      inner.document.close()
      this.ready = new Promise((done, fail) => {
        const script = inner.document.createElement("script")
        Object.assign(script, { src: url, onload: done, onerror: fail })
        inner.document.body.appendChild(script)
      })
    }
    postMessage(data) {
      this.ready.then(() => {
        const inner = this.frame.contentWindow
        inner.dispatchEvent(new inner.MessageEvent("message", { data }))
      })
    }
    terminate() {
      this.frame.remove()
    }
  }
}
