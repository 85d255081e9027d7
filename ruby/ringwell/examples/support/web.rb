# frozen_string_literal: true

require "socket"

# A minimal web server and load generator for the examples, in plain sequential Ruby. Under a
# scheduler, each connection is served in its own fiber.
module Web
  # Answers each request with the block's result.
  #
  # @yieldparam path [String]
  # @yieldreturn [String] the body
  class Server
    def initialize(&answer)
      @listener = TCPServer.new("127.0.0.1", 0)
      @answer = answer
      @stopped = false
    end

    def port = @listener.addr[1]

    # Accepts connections in a fiber, and serves each in its own fiber.
    def in_fibers
      Fiber.schedule { accept { |socket| Fiber.schedule { serve(socket) } } }
      self
    end

    # Accepts connections in a thread, and serves each in its own thread.
    def in_threads
      Thread.new { accept { |socket| Thread.new { serve(socket) } } }
      self
    end

    # Serves one connection after another, like a program that blocks.
    def one_by_one
      Thread.new { accept { |socket| serve(socket) } }
      self
    end

    # Opens one more connection to wake the accepting fiber or thread, because a socket should not
    # be closed while another fiber or thread waits for it.
    def stop
      @stopped = true
      Socket.tcp("127.0.0.1", port).close
    end

    private

    def accept
      while (socket = @listener.accept) && !@stopped
        yield socket
      end
      [socket, @listener].each(&:close)
    end

    def serve(socket)
      head = socket.gets("\r\n\r\n") or return
      body = @answer.call(head[/\A\S+ (\S+)/, 1])
      socket.write("HTTP/1.1 200 OK\r\nconnection: close\r\n" \
                   "content-length: #{body.bytesize}\r\n\r\n#{body}")
    ensure
      socket.close
    end
  end

  # Sends one request, and returns the body of its answer.
  def self.get(port, path = "/")
    socket = Socket.tcp("127.0.0.1", port)
    socket.write("GET #{path} HTTP/1.1\r\nhost: localhost\r\n\r\n")
    socket.read.split("\r\n\r\n", 2).last
  ensure
    socket&.close
  end

  # Sends this many requests, this many at a time, from threads without a scheduler.
  #
  # @return [Float] seconds
  def self.load(port, requests:, at_once:)
    waiting = Thread::Queue.new((1..requests).to_a).close
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    workers = at_once.times.map { Thread.new { get(port) while waiting.pop } }
    workers.each(&:join)
    Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
  end
end
