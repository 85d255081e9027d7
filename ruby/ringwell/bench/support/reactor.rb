# frozen_string_literal: true

require "eventmachine"

# Serves the published API's bulk request in EventMachine's reactor, with a fiber per request.
# Supports only the part of HTTP that the benchmark's sender uses.
module Reactor
  # One kept-alive connection.
  class Connection < EventMachine::Connection
    LENGTH = /^content-length:\s*(\d+)/i

    def initialize(backend)
      super
      @backend = backend
      @received = +""
    end

    def receive_data(data)
      @received << data
      while (head = @received.index("\r\n\r\n"))
        size = head + 4 + @received[0, head][LENGTH, 1].to_i
        return if @received.bytesize < size

        body = @received.byteslice(head + 4, size - head - 4)
        @received = @received.byteslice(size..)
        Fiber.new { answer(body) }.resume
      end
    end

    private

    def answer(body)
      bytes = @backend.bulk(body)
      send_data("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" \
                "content-length: #{bytes.bytesize}\r\n\r\n#{bytes}")
    end
  end

  def self.serve(backend, port)
    EventMachine.epoll
    EventMachine.run { EventMachine.start_server("127.0.0.1", port, Connection, backend) }
  end
end
