# frozen_string_literal: true

# Sends every case of fixtures/api to the Rack application, first with the client and a real server
# behind it, then with the engine in this process. Detects anything that the application adds or
# removes.
class GoldenTest < RingwellTest
  FIXTURES = "#{Server::ROOT}/fixtures/api"
  PLACES = {"{{integer}}" => "\\d+", "{{decimal}}" => "\\d+\\.\\d+"}.freeze
  # The number of cases that run in parallel, because starting their servers takes most of the time.
  AT_ONCE = 4

  Message = Struct.new(:first, :headers, :body) do
    def self.read(path)
      head, body = File.binread(path).split("\n\n", 2)
      first, *headers = head.lines(chomp: true)
      new(first, headers.to_h { |line| line.split(": ", 2) }, body.to_s)
    end
  end

  # Cases that concern only HTTP servers, not Rack applications. A path's methods concern both.
  OF_SERVERS = Dir["#{FIXTURES}/http-*/"] - ["#{FIXTURES}/http-head/"]
  CASES = (Dir["#{FIXTURES}/*/"] - OF_SERVERS).sort.freeze

  it "every case is answered as its files say, with a server behind" do
    assert_operator CASES.size, :>=, 70
    queue = Thread::Queue.new(CASES).close
    workers = AT_ONCE.times.map do
      Thread.new do
        faults = []
        while (folder = queue.pop)
          faults.concat(run_case(folder))
        end
        faults
      end
    end
    assert_equal [], workers.flat_map(&:value)
  end

  [Ringwell::Engine::Library.driver, :fiddle].uniq.each do |driver|
    it "every case is answered as its files say, with the engine in this process by #{driver}" do
      assert_equal [], CASES.flat_map { |folder| run_case_here(folder, driver) }
    end
  end

  private

  def run_case_here(folder, driver)
    settings = read("#{folder}settings.toml")
    before = ENV.to_h
    read("#{folder}environment").lines(chomp: true).each { |line| ENV.store(*line.split("=", 2)) }
    Dir.mktmpdir do |files|
      pools = File.read("#{FIXTURES}/pools.toml")
      File.write("#{files}/ringwell.toml", %(data = "data"\n#{settings}\n#{pools}))
      config = "#{files}/ringwell.toml"
      # On a busy machine, 100 ms (the server's default) may pass between two rows.
      deadline = settings.include?("deadline") ? nil : 10
      Ringwell::Engine.open(config:, durability: :memory, driver:, deadline:) do |engine|
        app = application(engine, settings)
        requests(folder).flat_map { |request, response| compare(app, request, response) }
      end
    end
  ensure
    ENV.replace(before)
  end

  def run_case(folder)
    settings = read("#{folder}settings.toml")
    environment = read("#{folder}environment").lines(chomp: true).to_h { |line| line.split("=", 2) }
    running = Server.new("#{settings}\n#{read("#{FIXTURES}/pools.toml")}", environment: environment)
    made = Ringwell::Client.new(running.url, deadline: 20)
    app = application(made, settings)
    requests(folder).flat_map { |request, response| compare(app, request, response) }
  ensure
    made&.close
    running&.stop
  end

  # Creates the application. Server settings that it implements itself are passed as options.
  def application(backend, settings)
    options = {}
    options[:bulk_only] = true if settings.include?("bulk_only = true")
    options[:body_bytes] = settings[/body_bytes = (\d+)/, 1].to_i if settings.include?("body_bytes")
    Ringwell::Rack::App.new(backend, **options)
  end

  def requests(folder)
    turns = ["", "-2", "-3", "-4"]
    turns.map { |turn| ["#{folder}request#{turn}.http", "#{folder}response#{turn}.http"] }
      .select { |request, _| File.exist?(request) }
  end

  def compare(app, request, response)
    asked = Message.read(request)
    wanted = Message.read(response)
    status, headers, body = app.call(environment(asked))
    got = [status.to_s, *wanted.headers.keys.map { |name| headers[name] }, body.join]
    expected = [wanted.first.split[1], *wanted.headers.values, wanted.body]
    expected.zip(got).reject { |want, have| pattern(want).match?(have.to_s.b) }
      .map { |want, have| "#{request}: wanted #{want.inspect}, got #{have.inspect}" }
  end

  def environment(message)
    method, target = message.first.split
    path, query = target.split("?", 2)
    env = {"REQUEST_METHOD" => method, "SCRIPT_NAME" => "", "PATH_INFO" => path,
            "QUERY_STRING" => query.to_s, "rack.input" => StringIO.new(message.body),
            "CONTENT_LENGTH" => message.body.bytesize.to_s}
    message.headers.each { |name, value| env["HTTP_#{name.upcase.tr("-", "_")}"] = value }
    env
  end

  def pattern(text)
    parts = text.b.split(/(\{\{integer\}\}|\{\{decimal\}\})/n).map do |part|
      PLACES.fetch(part) { Regexp.escape(part) }
    end
    Regexp.new("\\A#{parts.join}\\z", Regexp::NOENCODING)
  end

  def read(path) = File.exist?(path) ? File.read(path) : ""
end
