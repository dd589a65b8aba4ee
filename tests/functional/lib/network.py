"""A network namespace of our own, taps in it, and the host's ends of what a guest connects to.

enter_namespace() moves this process (and what it starts) into a fresh namespace, which disappears
with the last of them: nothing is left to clean up.
"""
import ctypes
import hashlib
import http.server
import os
import signal
import socket
import struct
import subprocess
import threading
import time

from . import debian_roots

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
SOL_PACKET, PACKET_AUXDATA = 263, 8
ETH_P_ALL = 3
VLAN_ECHO_MAC = bytes.fromhex("020000000501")

libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent():
    """For preexec_fn: a child that outlives nobody."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run(*command):
    subprocess.run(command, check=True)


def enter_namespace():
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "a network namespace (root is needed): "
                      + os.strerror(ctypes.get_errno()))
    run("ip", "link", "set", "lo", "up")


def enter_namespace_for_taps():
    """The same, for a test that makes taps; why that cannot be here, or None."""
    if os.geteuid() != 0:
        return "root is needed for taps"
    if not os.path.exists("/dev/net/tun"):
        return "there is no /dev/net/tun"
    try:
        enter_namespace()
    except OSError as error:
        return str(error)
    return None


def configure(name, address):
    """@address (and /24) on the host's side of interface @name."""
    run("ip", "addr", "add", f"{address}/24", "dev", name)
    run("ip", "link", "set", name, "up")


def connect(address, port, timeout):
    """A TCP connection to a guest, which may still be learning our address."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return socket.create_connection((address, port), timeout=timeout)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def make_tap(name, address, *flags):
    """A tap for an emulator to attach to, with @address (and /24) on the host's side.

    @flags: what `ip tuntap` knows beside vnet_hdr, as multi_queue.
    """
    run("ip", "tuntap", "add", "dev", name, "mode", "tap", "vnet_hdr", *flags)
    configure(name, address)


def passt_command(*options):
    """passt of Debian forky as the network 10.9.0.0/24: the guest is .2, its gateway .1 this
    namespace's loopback interface, and port 5001 there the guest's."""
    script = debian_roots.PROJECT / "scripts" / "run-in-root.sh"
    return [str(script), str(debian_roots.debian_root("forky")), "passt", "-f", *options,
            "-4", "-a", "10.9.0.2", "-n", "24", "-g", "10.9.0.1", "-t", "5001"]


class WebServer:
    """Serves one body; use as a context."""

    def __init__(self, size, address="127.0.0.1"):
        body = os.urandom(size)
        self.sha256 = hashlib.sha256(body).hexdigest()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer((address, 0), Handler)
        self.port = self.server.server_address[1]

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class TcpSink:
    """Takes one connection after the other; digest() is the SHA-256 of the last one's bytes."""

    def __init__(self, address):
        self.listener = socket.create_server((address, 0))
        self.port = self.listener.getsockname()[1]
        self.done = threading.Event()
        self.last = None
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            digest = hashlib.sha256()
            with connection:
                while data := connection.recv(65536):
                    digest.update(data)
            self.last = digest.hexdigest()
            self.done.set()

    def digest(self, timeout):
        """Of the connection that ended since the last call."""
        if not self.done.wait(timeout):
            return None
        self.done.clear()
        return self.last


class VlanEcho:
    """Answers ARP and ping for @address in one VLAN of @interface, tag by tag.

    The kernel here needs no VLAN support: it takes tags off received frames and tells of them
    beside the data, and sends what it is given.
    """

    def __init__(self, interface, vlan, address):
        self.vlan = vlan
        self.address = socket.inet_aton(address)
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.bind((interface, 0))
        self.socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self.socket.settimeout(0.1)
        self.stopping = False
        self.answered = 0
        self.untagged = 0
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping = True
        self.thread.join()
        self.socket.close()

    @staticmethod
    def tag_of(control):
        for level, kind, data in control:
            if level == SOL_PACKET and kind == PACKET_AUXDATA:
                status, _, _, _, _, tci, _ = struct.unpack("IIIHHHH", data[:20])
                if status & 0x10:  # TP_STATUS_VLAN_VALID
                    return tci & 0xFFF
        return None

    def reply(self, destination, ethertype, payload):
        self.socket.send(destination + VLAN_ECHO_MAC + struct.pack("!HH", 0x8100, self.vlan)
                         + struct.pack("!H", ethertype) + payload)
        self.answered += 1

    def answer(self, frame):
        source, ethertype = frame[6:12], struct.unpack("!H", frame[12:14])[0]
        if ethertype == 0x0806 and frame[20:22] == b"\0\1" and frame[38:42] == self.address:
            self.reply(source, 0x0806, frame[14:20] + b"\0\2" + VLAN_ECHO_MAC + self.address
                       + frame[22:32])
        elif ethertype == 0x0800 and frame[23] == 1 and frame[30:34] == self.address \
                and frame[34] == 8:
            size = struct.unpack("!H", frame[16:18])[0]
            ip = bytearray(frame[14:14 + size])
            ip[12:16], ip[16:20] = ip[16:20], ip[12:16]
            ip[20] = 0  # echo reply; its checksum grows by what the type shrank
            total = struct.unpack("!H", ip[22:24])[0] + 0x0800
            ip[22:24] = struct.pack("!H", (total & 0xFFFF) + (total >> 16))
            self.reply(source, 0x0800, bytes(ip))

    def serve(self):
        while not self.stopping:
            try:
                frame, control, _, address = self.socket.recvmsg(65536, 256)
            except TimeoutError:
                continue
            if address[2] == socket.PACKET_OUTGOING:
                continue
            tag = self.tag_of(control)
            if tag == self.vlan and len(frame) >= 42:
                self.answer(frame)
            elif tag is None:
                self.untagged += 1
