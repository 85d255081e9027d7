# frozen_string_literal: true

require "socket"
require "json"

# A server with any behaviour that a test needs, including faulty behaviour. The block receives each
# request: its body, its number on this server, its connection's number, and the socket. The block
# returns the bytes to send, :close, or :hang.
class StubServer
  Request = Struct.new(:head, :body, :number, :connection, :socket)

  attr_reader :connections, :requests

  def initialize(path: nil, &answer)
    @listener = path ? UNIXServer.new(path) : TCPServer.new("127.0.0.1", 0)
    @answer = answer
    @connections = 0
    @requests = []
    @sockets = []
    @thread = Thread.new { accept }
  end

  def url = "http://127.0.0.1:#{@listener.addr[1]}"

  # Starts a server that answers a batch with a number for each row, after this many seconds.
  def self.numbers(after: 0)
    new do |request|
      sleep after if after.positive?
      answer(rows(request.body))
    end
  end

  def self.rows(body)
    JSON.parse(body)["requests"].each_with_index.map do |row, index|
      number = format("888555%04d", index)
      {"request_id" => row["request_id"], "promo_number_formatted" => "",
        "promo_number" => number, "tracking_url" => ""}.compact
    end
  end

  def self.answer(rows, status: "200 OK", headers: "")
    body = rows.is_a?(String) ? rows : JSON.generate("responses" => rows)
    "HTTP/1.1 #{status}\r\ncontent-type: application/json\r\n#{headers}" \
      "content-length: #{body.bytesize}\r\n\r\n#{body}"
  end

  def stop
    @thread.kill
    [@listener, *@sockets].each(&:close)
  end

  private

  def accept
    loop do
      socket = @listener.accept
      @connections += 1
      @sockets << socket
      connection = @connections
      Thread.new { serve(socket, connection) }.report_on_exception = false
    end
  end

  def serve(socket, connection)
    while (head = socket.gets("\r\n\r\n"))
      body = socket.read(head[/content-length: (\d+)/i, 1].to_i)
      request = Request.new(head, body, @requests.size + 1, connection, socket)
      @requests << request
      reply = @answer.call(request)
      sleep if reply == :hang
      return socket.close if reply == :close

      socket.write(reply) if reply
    end
  rescue IOError, SystemCallError
    nil
  end
end
