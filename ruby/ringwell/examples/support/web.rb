# frozen_string_literal: true

require "socket"

# As much of a web server and of a load generator as the examples need, in plain linear Ruby: under
# a scheduler each connection is served in its own fiber.
module Web
  # Answers each request with what the block returns.
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

    # Accepts in a fiber; each connection gets its own.
    def in_fibers
      Fiber.schedule { accept { |socket| Fiber.schedule { serve(socket) } } }
      self
    end

    # Accepts in a thread; each connection gets its own.
    def in_threads
      Thread.new { accept { |socket| Thread.new { serve(socket) } } }
      self
    end

    # One connection after another, as a program that blocks would.
    def one_by_one
      Thread.new { accept { |socket| serve(socket) } }
      self
    end

    # Wakes the accepting fiber or thread by one more connection: a socket that a fiber or thread waits for should
    # not be closed behind its back.
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

  # One request, in the words in which one would think of it.
  def self.get(port, path = "/")
    socket = Socket.tcp("127.0.0.1", port)
    socket.write("GET #{path} HTTP/1.1\r\nhost: localhost\r\n\r\n")
    socket.read.split("\r\n\r\n", 2).last
  ensure
    socket&.close
  end

  # So many requests, so many at a time, from threads outside of any scheduler.
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
